package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	gbalancer "google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer"
	"github.com/mlbalancer/mlbalancer/integration/rig"
	"github.com/mlbalancer/mlbalancer/picker"
)

// dialOptions are those of the module, for a config that is the policy's section of a service config.
func dialOptions(config string, opts ...mlbalancer.Option) []grpc.DialOption {
	return append(mlbalancer.DialOptions(opts...), grpc.WithDefaultServiceConfig(rig.ServiceConfig(config)))
}

// trip has each server fail calls until all breakers are open.
func trip(t *testing.T, c *rig.Client, backends ...*rig.Backend) {
	t.Helper()
	for _, b := range backends {
		b.Fails(codes.Unavailable, "out of order")
	}
	open := 0
	for i := 0; i < 1000 && open < len(backends); i++ {
		c.Send(rig.Model(i), limit)
		open = c.Snapshot().OpenBreakers
	}
	require.Equal(t, len(backends), open, "breakers open")
}

const callHeader = "x-call"

// However the first probes end, calls that wait while all breakers are open end soon after the server has recovered.
func TestProbesThatSayNothing(t *testing.T) {
	const openFor, waiting = 2 * time.Second, 100
	hang := func(ctx context.Context, _ string) error { return rig.Wait(ctx, time.Hour) }
	neutral := func(context.Context, string) error { return status.Error(codes.NotFound, "no such row") }
	for name, probe := range map[string]rig.Handler{"hung": hang, "cancelled": hang, "neutral": neutral} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				f := rig.New(t, 1)
				c := f.Client(rig.Setup{Options: dialOptions(
					`{"breaker":{"openFor":"2s","maxOpenFor":"2s","maxEjectionPercent":100},"health":{"panicThreshold":0}}`)})
				c.Ready(1)
				b := f.Backends[0]
				b.Takes(10 * time.Millisecond) // so that it is known when a probe hangs
				require.NoError(t, c.Send("m", limit).Err)
				trip(t, c, b)

				var mu sync.Mutex
				var probes []int // the calls that are the first probes
				var recovered time.Time
				cancels := make([]context.CancelFunc, waiting)
				b.Handle(func(ctx context.Context, method string) error {
					n, err := strconv.Atoi(rig.Header(ctx, callHeader))
					mu.Lock()
					first := err == nil && len(probes) < 3
					if first {
						probes = append(probes, n)
						recovered = time.Now() // all calls after these are fine
					}
					mu.Unlock()
					if !first {
						return nil
					}
					if name == "cancelled" {
						cancels[n]()
					}
					return probe(ctx, method)
				})
				results := make([]rig.Result, waiting)
				var calls sync.WaitGroup
				for i := range waiting {
					ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), callHeader, strconv.Itoa(i)), 20*time.Second)
					defer cancel()
					cancels[i] = cancel
					calls.Go(func() {
						results[i].Backend, results[i].Err = c.Call(ctx, "m", grpc.WaitForReady(true))
						results[i].Sent = time.Now() // when it ended
					})
				}
				calls.Wait()
				require.Len(t, probes, 3)
				for i, r := range results {
					if slices.Contains(probes, i) {
						require.Error(t, r.Err)
						continue
					}
					require.NoError(t, r.Err)
					require.LessOrEqual(t, r.Sent.Sub(recovered), 2*openFor, "a call that waited")
				}
				require.Equal(t, "closed", c.Endpoint(b.Addr()).Breaker.State)
			})
		})
	}
}

// A call that was not sent, one that the policy refused, and those that are open when the channel is closed say nothing about a server.
func TestBreakersCountOnlyWhatServersDid(t *testing.T) {
	f := rig.New(t, 2)
	ch := rig.ModelAware(t, `{}`, f.Endpoints()...)
	counts := func() (n []any) {
		s := ch.Snapshot()
		for _, e := range s.Endpoints {
			n = append(n, e.Breaker.Counts)
		}
		return append(n, s.Transitions)
	}
	pick := func(i int) (gbalancer.PickResult, context.Context) {
		ctx := rig.ForModel(t.Context(), rig.Model(i))
		r, err := ch.Picker().Pick(gbalancer.PickInfo{FullMethodName: rig.Infer, Ctx: ctx})
		require.NoError(t, err)
		return r, ctx
	}
	none := counts()
	for i := range 100 {
		r, _ := pick(i)
		r.Done(gbalancer.DoneInfo{})
		r, _ = pick(i)
		r.Done(gbalancer.DoneInfo{Err: status.Error(codes.Unavailable, "no connection")})
	}
	require.Equal(t, none, counts(), "nothing was sent")

	var open []gbalancer.PickResult
	for i := range 100 {
		r, _ := pick(i)
		open = append(open, r)
	}
	r, _ := pick(0)
	r.Done(gbalancer.DoneInfo{Err: status.Error(codes.Unavailable, "out of order"), BytesSent: true})
	require.NotEqual(t, none, counts(), "this one was")
	ch.Close()
	before := counts()
	for _, r := range open {
		r.Done(gbalancer.DoneInfo{Err: status.Error(codes.Canceled, "grpc: the client connection is closing"), BytesSent: true, BytesReceived: true})
	}
	require.Equal(t, before, counts(), "the channel was closed")
	for _, e := range ch.Snapshot().Endpoints {
		require.Zero(t, e.InFlight)
	}
}

// A channel that is closed with streams open changes no breaker.
func TestBreakersOfClosedChannel(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := rig.NewNamed(t, "closing0", "closing1")
		c := f.Client(rig.Setup{Options: dialOptions(`{}`)})
		c.Ready(2)
		changed := atomic.Int64{}
		stop := logged.Listen(func(line string) {
			if strings.Contains(line, "breaker of closing") {
				changed.Add(1)
			}
		})
		defer stop()
		var streams []grpc.ClientStream
		for i := range 100 {
			s, err := c.NewStream(rig.ForModel(t.Context(), rig.Model(i)),
				&grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, rig.Stream)
			require.NoError(t, err)
			streams = append(streams, s)
		}
		require.NoError(t, c.Close())
		for _, s := range streams {
			require.Equal(t, codes.Canceled, status.Code(s.RecvMsg(nil)))
		}
		rig.For(time.Second, 100*time.Millisecond, func(int) {})
		require.Zero(t, changed.Load())
	})
}

// Where too few endpoints are usable, all are judged by their connections alone.
func TestPanic(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := rig.New(t, 4)
		c := f.Client(rig.Setup{Options: dialOptions(
			`{"breaker":{"maxEjectionPercent":100,"perModel":false,"openFor":"5s"},"health":{"panicThreshold":0.6}}`, mlbalancer.WithoutRetry())})
		c.Ready(4)
		trip(t, c, f.Backends[:2]...)
		rig.Eventually(t, func() bool { return c.Snapshot().Panic }, time.Second, "2 of 4 are less than 0.6")
		for _, b := range f.Backends {
			b.Handle(nil)
		}
		reasons, by := map[picker.Reason]int{}, map[string]int{}
		for i := range 400 {
			r, d := decide(c, rig.Model(i))
			require.NoError(t, r.Err)
			reasons[d.Reason]++
			by[r.Backend]++
			require.Equal(t, r.Backend == "b0" || r.Backend == "b1", d.Reason == picker.Panic, "%v for %s", d.Reason, r.Backend)
		}
		for _, b := range f.Backends {
			assert.Greater(t, by[b.Name], 40, b.Name)
		}
		load, ctx := make(chan rig.Results), context.Context(nil)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			load <- rig.Open(ctx, 200, func(i int) rig.Result { return c.Send(rig.Model(i%100), limit) })
		}()
		rig.Eventually(t, func() bool { s := c.Snapshot(); return s.OpenBreakers == 0 && !s.Panic }, 30*time.Second, "all is well again")
		cancel()
		rs := <-load
		require.Empty(t, rs.Failed(), "%v", rs)
		_, d := decide(c, "m")
		require.NotEqual(t, picker.Panic, d.Reason)
	})
}

func TestPanicOffFailsFast(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := rig.New(t, 3)
		c := f.Client(rig.Setup{Options: dialOptions(`{"breaker":{"maxEjectionPercent":100},"health":{"panicThreshold":0}}`)})
		c.Ready(3)
		trip(t, c, f.Backends...)
		started, before := 0, c.Snapshot()
		for _, b := range f.Backends {
			started += b.Started()
		}
		for i := range 100 {
			r := c.Send(rig.Model(i), limit)
			require.Equal(t, codes.Unavailable, status.Code(r.Err))
			require.Less(t, r.Took, 20*time.Millisecond)
			require.ErrorContains(t, r.Err, "model_aware: of 3 connected endpoints none takes the call: 3 breakers are open (")
			require.ErrorContains(t, r.Err, "b0:1 is open: ")
		}
		for _, b := range f.Backends {
			started -= b.Started()
		}
		require.Zero(t, started, "none reached a server")
		after := c.Snapshot()
		for i := range after.Endpoints {
			require.Equal(t, before.Endpoints[i].Breaker.Counts, after.Endpoints[i].Breaker.Counts, "own refusals are not counted")
		}
		require.Equal(t, before.Transitions, after.Transitions)
	})
}

// A channel that goes idle keeps what its breakers know, whether or not its connections do.
func TestBreakerStaysOpenWhileIdle(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := rig.New(t, 2)
		c := f.Client(rig.Setup{Idles: true, Options: append(dialOptions(`{"breaker":{"openFor":"60s"}}`), grpc.WithIdleTimeout(time.Second))})
		c.Ready(2)
		b := f.Backends[0]
		trip(t, c, b)
		b.Handle(nil)
		rig.Eventually(t, func() bool { return c.GetState().String() == "IDLE" }, 10*time.Second, "idle")
		started := b.Started()
		for i := range 50 {
			require.NoError(t, c.Send(rig.Model(i), limit).Err)
		}
		require.Equal(t, started, b.Started())
		require.Equal(t, "open", c.Endpoint(b.Addr()).Breaker.State)
	})
}

// How many calls an endpoint gets until its breaker is open.
func TestBreakerDetects(t *testing.T) {
	const runs, warm = 31, 200
	for share, most := range map[float64]int{.2: 20, 1: 5} {
		t.Run(fmt.Sprint(share), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				var calls []int
				f := rig.New(t, 5)
				for seed := range uint64(runs) {
					calls = append(calls, detect(t, f, share, seed, warm))
				}
				slices.Sort(calls)
				require.LessOrEqual(t, calls[runs/2], most, "%v", calls)
				if share == 1 {
					require.LessOrEqual(t, calls[runs-1], most, "%v", calls)
				}
			})
		})
	}
}

func detect(t *testing.T, f *rig.Fleet, share float64, seed, warm uint64) int {
	for _, b := range f.Backends {
		b.Takes(time.Millisecond)
	}
	c := f.Client(rig.Setup{Options: dialOptions(`{}`, mlbalancer.WithoutRetry())})
	c.Ready(len(f.Backends))
	for i := range warm {
		require.NoError(t, c.Send(rig.Model(int(i%100)), limit).Err)
	}
	b := f.Backends[0]
	r := rand.New(rand.NewPCG(seed, 7))
	var mu sync.Mutex
	b.Handle(func(context.Context, string) error {
		mu.Lock()
		defer mu.Unlock()
		if r.Float64() < share {
			return status.Error(codes.Unavailable, "out of order")
		}
		return nil
	})
	started := b.Started()
	open := func() bool { return c.Endpoint(b.Addr()).Breaker.State != "closed" }
	for i := 0; i < 5000 && !open(); i++ {
		c.Send(rig.Model(i%100), limit)
	}
	require.True(t, open())
	require.NoError(t, c.Close())
	return b.Started() - started
}

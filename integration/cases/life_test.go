package cases

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	gresolver "google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer/integration/rig"
)

// A channel that goes idle while its resolver delivers must not deadlock (grpc/grpc#35398). The resolvers of files and of cluster
// registries join with those.
func TestLIFE01(t *testing.T) {
	t.Parallel()
	for name, target := range map[string]string{"static": "mlb-static:///b0:1,b1:1,b2:1,b3:1", "pushing": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := rig.New(t, 4)
			c := f.Client(rig.Setup{Target: target, Idles: true, Options: []grpc.DialOption{grpc.WithIdleTimeout(100 * time.Millisecond)}})
			rig.Watchdog(t, time.Minute)
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
			defer cancel()
			var beside sync.WaitGroup
			beside.Go(func() {
				every(ctx, 5*time.Millisecond, func() { c.Resolve(shuffled(f.Endpoints())...) })
			})
			beside.Go(func() {
				every(ctx, 200*time.Millisecond, func() {
					if rand.IntN(2) == 0 {
						c.Connect()
					}
				})
			})
			var rs rig.Results
			idle := 0
			for ctx.Err() == nil {
				rs = append(rs, rig.Closed(5, 5, func(int) rig.Result { return c.Send(rig.Model(rand.IntN(100)), time.Second) })...)
				pause(ctx, 80*time.Millisecond+rand.N(70*time.Millisecond))
				if c.GetState() == connectivity.Idle {
					idle++
				}
			}
			beside.Wait()
			t.Logf("%v; idle %d times", rs, idle)
			assert.Greater(t, idle, 5, "times that the channel was idle")
			assert.LessOrEqual(t, float64(len(rs.Failed())), .001*float64(len(rs)), "%v", rs)
		})
	}
}

// every calls f at an interval until ctx is done.
func every(ctx context.Context, interval time.Duration, f func()) {
	t := time.NewTicker(interval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			f()
		}
	}
}

// pause waits for a time, or until ctx is done.
func pause(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}

var errResolver = errors.New("the name service is on fire")

// A resolver's error, or anything else that may reach a balancer, must not panic it (grpc/grpc-go#8332).
func TestLIFE03(t *testing.T) {
	t.Parallel()
	t.Run("errors before and after a good update", func(t *testing.T) {
		t.Parallel()
		f := rig.New(t, 2)
		c := f.Client(rig.Setup{Endpoints: []gresolver.Endpoint{}})
		c.Connect()
		for range 2 {
			c.ResolveError(errResolver)
			r := c.Send("m", limit)
			require.Equal(t, codes.Unavailable, status.Code(r.Err))
			require.ErrorContains(t, r.Err, errResolver.Error())
		}
		c.Resolve(f.Endpoints()...)
		c.Ready(2)
		for range 2 {
			c.ResolveError(errResolver)
			rs := rig.Closed(2, 50, func(i int) rig.Result { return c.Send(rig.Model(i), limit) })
			require.Empty(t, rs.Failed(), "%v", rs)
			c.Resolve(f.Endpoints()...)
		}
		require.NoError(t, c.Close())
		c.ResolveError(errResolver)
		c.Resolve(f.Endpoints()...)
	})
	t.Run("any sequence", func(t *testing.T) {
		t.Parallel()
		f := rig.New(t, 4)
		f.Backends[2].BlackHole()
		f.Backends[3].HangUp()
		good := f.Endpoints()[:2]
		rig.Watchdog(t, 5*time.Minute)
		rs := rig.Closed(4, 1000, func(int) rig.Result {
			c := f.Client(rig.Setup{Endpoints: []gresolver.Endpoint{}})
			c.Connect()
			for range 20 {
				anything(c, f)
			}
			require.NoError(t, c.ResolveConfig(`{}`, good...).Err)
			r := c.Send("m", limit)
			if r.Err == nil {
				c.ResolveError(errResolver)
				r = c.Send("n", limit)
			}
			assert.NoError(t, c.Close())
			c.ResolveError(errResolver)
			return r
		})
		require.Empty(t, rs.Failed(), "%v", rs)
	})
}

// anything has one random thing happen to a channel.
func anything(c *rig.Client, f *rig.Fleet) {
	good := f.Endpoints()[:2]
	switch rand.IntN(10) {
	case 0:
		c.ResolveError(errResolver)
	case 1:
		c.Resolve()
	case 2:
		c.Resolve(shuffled(good)...)
	case 3:
		c.Resolve(good[rand.IntN(2)])
	case 4: // one is removed while it connects
		c.Resolve(append(f.Endpoints()[2:3], good[0])...)
		c.Resolve(good[0])
	case 5: // connections are closed as soon as they are made
		c.Resolve(f.Endpoints()[1:]...)
	case 6:
		c.ResolveConfig(`{"ring":{"replicas":-1}}`, good...)
	case 7:
		c.ResolveConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`, good...)
	case 8: // two endpoints of one name
		c.Resolve(rig.Named("same", "b0:1"), rig.Named("same", "b1:1"))
	case 9:
		c.Send("m", time.Millisecond)
	}
}

// A server that shuts down gracefully must not show as errors (grpc/grpc-go#2919). Hedging and breakers join with those.
func TestLIFE08(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]string{"p2c": p2c, "ring": byRing, "affinity": `{}`} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				f := rig.New(t, 6)
				var runs sync.Map // from the call's number to how often it ran
				for _, b := range f.Backends {
					b.Handle(func(ctx context.Context, _ string) error {
						n, _ := runs.LoadOrStore(number(ctx), new(atomic.Int64))
						n.(*atomic.Int64).Add(1)
						return rig.Wait(ctx, 20*time.Millisecond)
					})
				}
				c := f.Client(rig.Setup{Config: config})
				c.Ready(6)
				traffic := atRate(t, 2000, func(i int) rig.Result { return numbered(c, i, limit) })
				var stopping sync.WaitGroup
				for range 2 {
					for i, b := range f.Backends {
						stopping.Go(b.GracefulStop)
						pause(t.Context(), 300*time.Millisecond)
						c.Resolve(without(f.Endpoints(), i)...)
						pause(t.Context(), 25*time.Millisecond)
						b.Start()
						pause(t.Context(), 100*time.Millisecond)
						c.Resolve(f.Endpoints()...)
					}
				}
				rs := traffic.stop()
				stopping.Wait()
				require.GreaterOrEqual(t, len(rs), 10_000, "half of the case's calls, for each of two strategies")
				require.Empty(t, rs.Failed(), "%v", rs)
				for _, r := range rs {
					n, ok := runs.Load(r.Index)
					require.True(t, ok, "call "+strconv.Itoa(r.Index)+" has run")
					require.EqualValues(t, 1, n.(*atomic.Int64).Load(), "call %d has run once", r.Index)
				}
			})
		})
	}
}

// When all backends are dead calls must fail, not hang (grpc/grpc-go#3339).
func TestLIFE09(t *testing.T) { inBubble(t, testLIFE09) }

func testLIFE09(t *testing.T) {
	f := rig.New(t, 100)
	for i, b := range f.Backends {
		if i < 50 {
			b.Stop()
		} else {
			b.BlackHole()
		}
	}
	const wait = 2 * time.Second
	c := f.Client(rig.Setup{Options: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
		MinConnectTimeout: time.Second,
		Backoff:           backoff.Config{BaseDelay: time.Second, Multiplier: 1.6, Jitter: .2, MaxDelay: wait},
	})}})
	c.Connect()
	pause(t.Context(), 3*time.Second)
	rs := during(t, 5*time.Second, 20, func(i int) rig.Result { return c.Send(rig.Model(i), 5*time.Second) })
	quick := 0
	for _, r := range rs {
		require.Equal(t, codes.Unavailable, status.Code(r.Err), "%v", r.Err)
		require.ErrorContains(t, r.Err, "dial b")
		if r.Took < 100*time.Millisecond {
			quick++
		}
	}
	require.GreaterOrEqual(t, float64(quick), .95*float64(len(rs)), "calls that failed at once, of %d", len(rs))

	f.Backends[7].Start()
	rig.Eventually(t, func() bool { return c.Send("m", limit).Err == nil }, wait*12/10+time.Second, "a call succeeds")
	require.NoError(t, c.Send("m", limit).Err)
}

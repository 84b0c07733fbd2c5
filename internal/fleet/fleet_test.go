package fleet

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer/internal/oip"
)

// start starts a fleet for a test.
func start(t *testing.T, cfg Config) *Fleet {
	t.Helper()
	f, err := Start(cfg)
	require.NoError(t, err)
	t.Cleanup(f.Close)
	return f
}

// exact makes everything take exactly its mean time.
func exact(cfg Config) Config {
	cfg.ServiceCV, cfg.LoadCV = -1, -1
	return cfg
}

// client returns a client of one server.
func client(t *testing.T, f *Fleet, server int) *oip.Client {
	t.Helper()
	return oip.NewClient(channel(t, f, server))
}

func channel(t *testing.T, f *Fleet, server int) *grpc.ClientConn {
	t.Helper()
	cc, err := grpc.NewClient("passthrough:///"+f.Servers[server].Addr(), f.DialOptions()...)
	require.NoError(t, err)
	t.Cleanup(func() { cc.Close() })
	return cc
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// inBubble runs a test in virtual time, over in-memory pipes.
func inBubble(t *testing.T, cfg Config, test func(t *testing.T, f *Fleet)) {
	t.Helper()
	cfg.InMemory = true
	cfg.Signals = cmp.Or(cfg.Signals, Health|OIP)
	synctest.Test(t, func(t *testing.T) { test(t, start(t, cfg)) })
}

func requireStatus(t *testing.T, err error, code codes.Code, message string) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, code.String(), status.Code(err).String(), "%v", err)
	require.Equal(t, message, status.Convert(err).Message())
}

func TestServesOverPipesAndLoopback(t *testing.T) {
	for _, inMemory := range []bool{true, false} {
		t.Run(fmt.Sprintf("InMemory=%v", inMemory), func(t *testing.T) {
			f := start(t, Config{Servers: 2, Scale: 1e-3, InMemory: inMemory, Signals: OIP})
			require.Len(t, f.Addrs(), 2)
			for i, s := range f.Servers {
				assert.Equal(t, f.Addrs()[i], s.Addr())
				c := client(t, f, i)
				ready, err := c.ServerReady(testContext(t))
				require.NoError(t, err)
				assert.True(t, ready)

				req := NewRequest("m", time.Millisecond)
				req.Id = "42"
				resp, err := c.Infer(testContext(t), req)
				require.NoError(t, err)
				assert.Equal(t, "m", resp.GetModelName())
				assert.Equal(t, "1", resp.GetModelVersion())
				assert.Equal(t, "42", resp.GetId())
				assert.Equal(t, s.Name(), resp.GetParameters()[ServerParameter].GetStringParam())
				assert.True(t, resp.GetParameters()[ColdParameter].GetBoolParam())
				require.Len(t, resp.GetOutputs(), 1)
				assert.Equal(t, []int64{1}, resp.GetOutputs()[0].GetShape())
				assert.Equal(t, [][]byte{make([]byte, 4)}, resp.GetRawOutputContents())
			}
		})
	}
}

func TestDialerKnowsTheFleetOnly(t *testing.T) {
	f := start(t, Config{Servers: 1, InMemory: true})
	_, err := f.Dialer()(t.Context(), "elsewhere:1")
	assert.EqualError(t, err, `fleet: no server listens on "elsewhere:1"`)
}

func TestTimesAreModelTimes(t *testing.T) {
	inBubble(t, exact(Config{Servers: 1, Scale: 0.1}), func(t *testing.T, f *Fleet) {
		c := client(t, f, 0)
		for _, tc := range []struct {
			name string
			work time.Duration
			want time.Duration // wall clock
		}{
			{"cold", time.Second, 600 * time.Millisecond},
			{"warm", time.Second, 100 * time.Millisecond},
			{"drawn", -1, 25 * time.Millisecond},
		} {
			begin := time.Now()
			_, err := c.Infer(t.Context(), NewRequest("m", tc.work))
			require.NoError(t, err)
			assert.Equal(t, tc.want, time.Since(begin), tc.name)
		}
		st := f.Servers[0].Stats()
		assert.Equal(t, Stats{
			Server: "server-0", Calls: 3, OK: 3, Errors: map[codes.Code]uint64{},
			Hits: 2, ColdCalls: 1, ColdLoads: 1, Loads: 1, Busy: 2250 * time.Millisecond, Resident: []string{"m"},
		}, st)
		events := f.Events()
		require.Len(t, events, 2)
		assert.Equal(t, 500*time.Millisecond, events[1].Time.Sub(events[0].Time))
	})
}

func TestCallsQueueForWorkers(t *testing.T) {
	inBubble(t, exact(Config{Servers: 1, Workers: 2}), func(t *testing.T, f *Fleet) {
		s, c := f.Servers[0], client(t, f, 0)
		require.Equal(t, 1, s.Preload("m"))
		begin := time.Now()
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				_, err := c.Infer(t.Context(), NewRequest("m", time.Second))
				assert.NoError(t, err)
			})
		}
		wg.Go(func() {
			_, err := c.Infer(t.Context(), NewRequest("cold", time.Second))
			assert.NoError(t, err)
		})
		synctest.Wait() // all calls are in
		st := s.Stats()
		assert.Equal(t, []int{2, 3, 1}, []int{st.Running, st.Queued, st.Waiting})
		wg.Wait()
		assert.Equal(t, 6*time.Second, time.Since(begin))
		assert.Equal(t, 6*time.Second, s.Stats().Busy)
	})
}

func TestCallerWhoGivesUpFreesItsPlace(t *testing.T) {
	inBubble(t, exact(Config{Servers: 1, Workers: 1}), func(t *testing.T, f *Fleet) {
		s, c := f.Servers[0], client(t, f, 0)
		s.Preload("m")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for range 2 { // one on the worker, one behind it
			wg.Go(func() {
				_, err := c.Infer(ctx, NewRequest("m", time.Hour))
				assert.Equal(t, codes.DeadlineExceeded, status.Code(err))
			})
		}
		wg.Go(func() {
			_, err := c.Infer(ctx, NewRequest("cold", 0))
			assert.Equal(t, codes.DeadlineExceeded, status.Code(err))
		})
		wg.Wait()
		_, err := c.Infer(t.Context(), NewRequest("m", time.Second))
		require.NoError(t, err)
		st := s.Stats()
		assert.Equal(t, 2*time.Second, st.Busy)
		assert.EqualValues(t, 4, st.Calls)
		assert.EqualValues(t, 1, st.OK)
		assert.EqualValues(t, 3, st.Errors[codes.DeadlineExceeded]+st.Errors[codes.Canceled])
		assert.Zero(t, st.Running+st.Queued+st.Waiting)
	})
}

func TestSameSeedSameTimes(t *testing.T) {
	cfg := Config{Servers: 2, Seed: 7}
	history := func(t *testing.T, f *Fleet) (times []time.Duration) {
		for i := range f.Servers {
			c := client(t, f, i)
			for _, m := range []string{"a", "b", "a", "c", "d", "e"} {
				begin := time.Now()
				_, err := c.Infer(t.Context(), NewRequest(m, -1))
				require.NoError(t, err)
				times = append(times, time.Since(begin))
			}
		}
		return times
	}
	var first, again, afterReset, other []time.Duration
	inBubble(t, cfg, func(t *testing.T, f *Fleet) {
		first = history(t, f)
		require.NoError(t, f.Reset())
		afterReset = history(t, f)
	})
	inBubble(t, cfg, func(t *testing.T, f *Fleet) { again = history(t, f) })
	cfg.Seed = 8
	inBubble(t, cfg, func(t *testing.T, f *Fleet) { other = history(t, f) })
	assert.Equal(t, first, again)
	assert.Equal(t, first, afterReset)
	assert.NotEqual(t, first, other)
	assert.NotEqual(t, first[:6], first[6:], "servers draw their own numbers")
}

func TestDrawsHaveTheMeansTheyAreAskedFor(t *testing.T) {
	const n = 200_000
	d := newDraws(1, 0)
	var sum, squares float64
	for range n {
		x := lognormal(d.service, time.Second, 0.8).Seconds()
		sum += x
		squares += x * x
	}
	mean := sum / n
	assert.InDelta(t, 1, mean, 0.02)
	assert.InDelta(t, 0.8, math.Sqrt(squares/n-mean*mean)/mean, 0.03)

	sum = 0
	for i := range n {
		sum += d.modelMean(time.Second, fmt.Sprint("model-", i)).Seconds()
	}
	assert.InDelta(t, 1, sum/n, 0.02)
	elsewhere := newDraws(1, 5)
	assert.Equal(t, d.modelMean(time.Second, "m"), elsewhere.modelMean(time.Second, "m"), "a model is the same on every server")
}

func TestConfigIsChecked(t *testing.T) {
	for _, tc := range []struct {
		cfg  Config
		want string
	}{
		{Config{Servers: -1}, "fleet: Servers is -1, want at least 1, or 0 for 8"},
		{Config{Workers: -2}, "fleet: Workers is -2, want at least 1, or 0 for 4"},
		{Config{Slots: -3}, "fleet: Slots is -3, want at least 1, or 0 for 4"},
		{Config{Service: -time.Second}, "fleet: Service is -1s, want more than 0, or 0 for 250ms"},
		{Config{Load: -1}, "fleet: Load is -1ns, want more than 0, or 0 for 5s"},
		{Config{Scale: 2}, "fleet: Scale is 2, want more than 0 and at most 1, or 0 for 1"},
		{Config{Scale: math.NaN()}, "fleet: Scale is NaN, want more than 0 and at most 1, or 0 for 1"},
		{Config{Models: []string{"a", ""}}, "fleet: Models[1] is empty, want a name"},
	} {
		_, err := Start(tc.cfg)
		assert.EqualError(t, err, tc.want)
	}
}

func TestReset(t *testing.T) {
	inBubble(t, exact(Config{Servers: 4}), func(t *testing.T, f *Fleet) {
		for i, s := range f.Servers {
			s.Preload("m")
			_, err := client(t, f, i).Infer(t.Context(), NewRequest("m", 0))
			require.NoError(t, err)
		}
		f.Servers[0].Kill()
		f.Servers[1].Drain()
		f.Servers[2].Fail(codes.Internal, "broken", 1)
		f.Servers[2].FailModel("m", codes.Internal, "broken", 1)
		f.Servers[2].Slow(10)
		f.Servers[3].Hang(true)
		hung := make(chan error, 1)
		hanging := client(t, f, 3)
		go func() {
			_, err := hanging.Infer(context.Background(), NewRequest("m", 0))
			hung <- err
		}()
		synctest.Wait()

		require.NoError(t, f.Reset())
		requireStatus(t, <-hung, codes.Unavailable, "Server exiting")
		assert.Empty(t, f.Events())
		for i, s := range f.Servers {
			assert.Equal(t, Stats{Server: s.Name(), Errors: map[codes.Code]uint64{}}, s.Stats())
			begin := time.Now()
			resp, err := client(t, f, i).Infer(t.Context(), NewRequest("m", time.Second))
			require.NoError(t, err)
			assert.True(t, resp.GetParameters()[ColdParameter].GetBoolParam())
			assert.Equal(t, 6*time.Second, time.Since(begin))
		}
	})
}

func TestResetCutsOffCallsInWork(t *testing.T) {
	inBubble(t, exact(Config{Servers: 1, Workers: 1}), func(t *testing.T, f *Fleet) {
		c := client(t, f, 0)
		f.Servers[0].Preload("m")
		results := make(chan error, 3)
		for _, m := range []string{"m", "m", "cold"} { // running, queued, waiting
			go func() {
				_, err := c.Infer(context.Background(), NewRequest(m, time.Hour))
				results <- err
			}()
		}
		synctest.Wait()
		before := time.Now()
		require.NoError(t, f.Reset())
		for range 3 {
			requireStatus(t, <-results, codes.Unavailable, "Server exiting")
		}
		assert.Zero(t, time.Since(before))
		assert.Equal(t, Stats{Server: "server-0", Errors: map[codes.Code]uint64{}}, f.Servers[0].Stats(),
			"what was called before the reset counts nowhere after it")
	})
}

func TestClosedFleetStaysClosed(t *testing.T) {
	f := start(t, Config{Servers: 1})
	f.Close()
	f.Close()
	assert.EqualError(t, f.Servers[0].Restart(), "fleet: the fleet is closed")
	assert.EqualError(t, f.Reset(), "fleet: the fleet is closed")
}

func TestManyCallsAddUp(t *testing.T) {
	f := start(t, Config{Servers: 3, Slots: 2, Scale: 1e-4})
	f.Servers[1].Fail(codes.Internal, "broken", 0.3)
	ctx := testContext(t)
	var wg sync.WaitGroup
	for i := range f.Servers {
		c := client(t, f, i)
		for caller := range 8 {
			wg.Go(func() {
				for n := range 100 {
					ctx, cancel := context.WithTimeout(ctx, time.Duration(1+n%7)*time.Millisecond)
					_, err := c.Infer(ctx, NewRequest(fmt.Sprint("m", (caller+n)%5), time.Duration(n)*time.Millisecond))
					cancel()
					if err != nil {
						assert.Contains(t, []codes.Code{codes.Internal, codes.DeadlineExceeded}, status.Code(err), "%v", err)
					}
				}
			})
		}
	}
	wg.Wait()
	for i, s := range f.Servers {
		var st Stats
		require.Eventually(t, func() bool {
			st = s.Stats()
			ended := st.OK
			for _, n := range st.Errors {
				ended += n
			}
			return st.Calls == ended && st.Running+st.Queued+st.Waiting == 0
		}, 10*time.Second, time.Millisecond, "callers have left, their requests have not")
		assert.NotZero(t, st.OK)
		if i == 1 {
			assert.InDelta(t, 0.3*float64(st.Calls), float64(st.Errors[codes.Internal]), 0.1*float64(st.Calls))
		}
		assert.Equal(t, st.Calls-st.Errors[codes.Internal], st.Hits+st.ColdCalls)
		loaded, evicted := 0, 0
		for _, e := range s.Events() {
			assert.Equal(t, i, e.Server)
			switch e.Kind {
			case Loaded:
				loaded++
			case Evicted:
				evicted++
			}
		}
		assert.EqualValues(t, st.Evictions, evicted)
		assert.LessOrEqual(t, loaded-evicted, 2)
	}
}

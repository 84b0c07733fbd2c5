package oip

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/mlbalancer/mlbalancer/health"
	"github.com/mlbalancer/mlbalancer/internal/fleet"
	"github.com/mlbalancer/mlbalancer/internal/oip"
)

// triton runs a test in virtual time against a simulated server that behaves as Triton does in explicit mode.
func triton(t *testing.T, cfg fleet.Config, test func(t *testing.T, s *fleet.Server, cc *grpc.ClientConn)) {
	t.Helper()
	cfg.Servers, cfg.Explicit, cfg.NoWatch, cfg.InMemory, cfg.ServiceCV, cfg.LoadCV = 1, true, true, true, -1, -1
	synctest.Test(t, func(t *testing.T) {
		f, err := fleet.Start(cfg)
		require.NoError(t, err)
		t.Cleanup(f.Close)
		cc, err := grpc.NewClient("passthrough:///"+f.Servers[0].Addr(), f.DialOptions()...)
		require.NoError(t, err)
		t.Cleanup(func() { cc.Close() })
		test(t, f.Servers[0], cc)
	})
}

func TestTritonsReadySetIsComplete(t *testing.T) {
	t.Parallel()
	triton(t, fleet.Config{Models: []string{"m", "n", "o"}}, func(t *testing.T, s *fleet.Server, cc *grpc.ClientConn) {
		s.Preload("m", "n")
		w := watch(t, cc, "o")
		require.Equal(t, 1, w.count(), "the first poll is at once")
		assert.Equal(t, health.Report{
			Server: health.ServerReady,
			Models: []health.Model{
				{Name: "m", State: health.ModelReady}, {Name: "m:1", State: health.ModelReady},
				{Name: "n", State: health.ModelReady}, {Name: "n:1", State: health.ModelReady},
			},
			Complete: true, OnDemand: health.No, Interval: interval,
		}, w.reports[0])

		s.Evict("n")
		assert.Equal(t, map[string]health.ModelState{"m": health.ModelReady, "m:1": health.ModelReady}, states(t, w.last(t)))
	})
}

func TestServerThatLoadsIsNotReadyAndItsModelsAre(t *testing.T) {
	t.Parallel()
	cfg := fleet.Config{Slots: 1, Load: 3 * time.Second}
	triton(t, cfg, func(t *testing.T, s *fleet.Server, cc *grpc.ClientConn) {
		s.Preload("m")
		w := watch(t, cc)
		assert.Equal(t, health.ServerReady, w.last(t).Server)

		loads := make(chan error, 1)
		go func() { loads <- oip.NewClient(cc).Load(t.Context(), "n") }() // there is no room for it
		r := w.last(t)
		for {
			assert.Equal(t, health.ServerNotReady, r.Server)
			assert.Equal(t, health.ModelReady, states(t, r)["m"])
			assert.True(t, r.Complete)
			if len(loads) > 0 {
				break
			}
			r = w.last(t)
		}
		require.Error(t, <-loads)
		for range 5 {
			assert.Equal(t, health.ServerNotReady, w.last(t).Server, "for good, after a load that failed")
		}
		require.NoError(t, oip.NewClient(cc).Unload(t.Context(), "n"))
		assert.Equal(t, health.ServerReady, w.last(t).Server)
	})
}

func TestTritonThatExitsDrains(t *testing.T) {
	t.Parallel()
	triton(t, fleet.Config{}, func(t *testing.T, s *fleet.Server, cc *grpc.ClientConn) {
		s.Preload("m")
		w := watch(t, cc)
		s.Drain()
		assert.Equal(t, health.Report{Server: health.ServerDraining, Interval: interval}, w.last(t),
			"what was said of models stands")
		require.NoError(t, s.Restart())
		time.Sleep(5 * time.Second) // grpc connects again
		synctest.Wait()
		w = watch(t, cc)
		assert.Equal(t, health.ServerReady, w.last(t).Server)
	})
}

func TestTimesOfTheLastInterval(t *testing.T) {
	t.Parallel()
	triton(t, fleet.Config{Workers: 1}, func(t *testing.T, s *fleet.Server, cc *grpc.ClientConn) {
		s.Preload("m", "n")
		infer := func(model string, calls int, work time.Duration) {
			t.Helper()
			done := make(chan error, calls)
			for range calls {
				go func() {
					_, err := oip.NewClient(cc).Infer(t.Context(), fleet.NewRequest(model, work))
					done <- err
				}()
			}
			for range calls {
				require.NoError(t, <-done)
			}
		}
		infer("m", 10, 10*time.Millisecond) // before anybody watches
		w := watch(t, cc)
		r := w.last(t)
		assert.Zero(t, r.Load, "nobody has called since")
		assert.Zero(t, r.Models[0].Service)

		infer("m", 2, 40*time.Millisecond) // one waits 40 ms
		infer("n", 1, 20*time.Millisecond)
		r = w.last(t)
		for _, m := range r.Models {
			want := map[string]time.Duration{"m": 40, "m:1": 40, "n": 20, "n:1": 20}[m.Name] * time.Millisecond
			assert.Equal(t, want, m.Service, m.Name)
		}
		w.mu.Lock()
		var delays []time.Duration
		for _, r := range w.reports {
			if r.Load.Has == health.HasQueueDelay {
				delays = append(delays, r.Load.QueueDelay)
			}
		}
		w.mu.Unlock()
		assert.Equal(t, []time.Duration{40 * time.Millisecond / 3}, delays)

		r = w.last(t)
		assert.Zero(t, r.Load, "nobody has called since")
		assert.Equal(t, 40*time.Millisecond, r.Models[0].Service, "the last that is known")
	})
}

// stats is what Triton says of a version that has served some requests, each of which took 7 ms and waited 3.
func stats(name, version string, served uint64) *oip.ModelStatistics {
	d := func(each uint64) *oip.StatisticDuration {
		return &oip.StatisticDuration{Count: served, Ns: served * each * 1e6}
	}
	return &oip.ModelStatistics{
		Name: name, Version: version, InferenceCount: served,
		InferenceStats: &oip.InferStatistics{
			Success: d(10), Fail: d(1), Queue: d(3), ComputeInput: d(1), ComputeInfer: d(4), ComputeOutput: d(2), CacheHit: d(1),
		},
		BatchStats:  []*oip.InferBatchStatistics{{BatchSize: 1, ComputeInfer: d(4)}},
		MemoryUsage: []*oip.MemoryUsage{{Type: "GPU"}},
	}
}

func statsList(list ...*oip.ModelStatistics) *oip.ModelStatisticsResponse {
	return &oip.ModelStatisticsResponse{ModelStats: list}
}

func encode(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	require.NoError(t, err)
	return b
}

func TestCountersOfVersions(t *testing.T) {
	t.Parallel()
	const service, delay = 7 * time.Millisecond, 3 * time.Millisecond
	var s statistics
	for _, step := range []struct {
		name    string
		list    *oip.ModelStatisticsResponse
		service map[string]time.Duration
		delay   time.Duration
	}{
		{"the first is the baseline", statsList(stats("m", "1", 100), stats("m", "2", 5)),
			map[string]time.Duration{"m": 0, "m:1": 0, "m:2": 0}, 0},
		{"one version is called", statsList(stats("m", "1", 101), stats("m", "2", 5)),
			map[string]time.Duration{"m": service, "m:1": service, "m:2": 0}, delay},
		{"a version that restarts is a new baseline", statsList(stats("m", "1", 103), stats("m", "2", 1)),
			map[string]time.Duration{"m": service, "m:1": service, "m:2": 0}, delay},
		{"all restart", statsList(stats("m", "1", 0), stats("m", "2", 0)),
			map[string]time.Duration{"m": service, "m:1": service, "m:2": 0}, 0},
		{"a version goes, and one comes", statsList(stats("m", "2", 9), stats("m", "3", 50)),
			map[string]time.Duration{"m": service, "m:2": service, "m:3": 0}, delay},
		{"no versions", statsList(stats("m", "", 7)), map[string]time.Duration{"m": service}, 0},
		{"no versions, called", statsList(stats("m", "", 8)), map[string]time.Duration{"m": service}, delay},
		{"the same twice", statsList(stats("m", "", 9), stats("m", "", 500)), map[string]time.Duration{"m": service}, delay},
		{"nothing is ready", statsList(), map[string]time.Duration{}, 0},
		{"what was forgotten starts anew", statsList(stats("m", "", 20)), map[string]time.Duration{"m": 0}, 0},
	} {
		require.NoError(t, s.read(encode(t, step.list)), step.name)
		var r health.Report
		s.fill(&r)
		got := make(map[string]time.Duration)
		for name := range states(t, r) {
			got[name] = s.models[name].service
		}
		assert.Equal(t, step.service, got, step.name)
		assert.Equal(t, step.delay, r.Load.QueueDelay, step.name)
		assert.Equal(t, step.delay > 0, r.Load.Has == health.HasQueueDelay, step.name)
		assert.True(t, r.Complete, step.name)
		assert.Len(t, s.models, len(r.Models), step.name)
	}
}

func TestTimesAreBounded(t *testing.T) {
	t.Parallel()
	var s statistics
	require.NoError(t, s.read(encode(t, statsList(stats("m", "", 1)))))
	huge := &oip.StatisticDuration{Count: 2, Ns: 1<<64 - 1}
	require.NoError(t, s.read(encode(t, statsList(&oip.ModelStatistics{Name: "m", InferenceStats: &oip.InferStatistics{
		Success: huge, Queue: huge, ComputeInput: &oip.StatisticDuration{Count: 1, Ns: 1e6},
		ComputeInfer: &oip.StatisticDuration{Count: 1, Ns: 1 << 63}, ComputeOutput: &oip.StatisticDuration{Count: 1, Ns: 2e6},
	}}))))
	var r health.Report
	s.fill(&r)
	assert.Equal(t, maxMean, r.Load.QueueDelay)
	assert.Equal(t, maxMean, r.Models[0].Service)
}

func TestReadinessIsPolledOutOfStep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s server
		s.set(methodServerReady, ready)
		s.set(methodStatistics, always(statsList()))
		w := watch(t, s.connect(t))
		time.Sleep(100 * interval)
		synctest.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		require.InDelta(t, 100, len(w.times), 11)
		differ := make(map[time.Duration]bool)
		for i := 1; i < len(w.times); i++ {
			d := w.times[i].Sub(w.times[i-1])
			require.InDelta(t, interval, d, float64(interval)/10)
			differ[d] = true
		}
		assert.Greater(t, len(differ), 50)
	})
}

func TestListingThatIsRestrictedIsNotOffered(t *testing.T) {
	t.Parallel()
	const text = "This protocol is restricted, expecting header 'triton-grpc-protocol-k'"
	synctest.Test(t, func(t *testing.T) {
		var s server
		s.set(methodServerReady, ready)
		s.set(methodStatistics, fails(codes.Unavailable, text))
		s.set(methodIndex, always(&oip.RepositoryIndexResponse{Models: []*oip.RepositoryIndexResponse_ModelIndex{
			{Name: "a", Version: "1", State: "UNAVAILABLE", Reason: "unloaded"}, {Name: "a", Version: "2", State: "READY"},
			{Name: "b", Version: "1", State: "LOADING"}, {Name: "b", Version: "2", State: "UNLOADING"},
			{Name: "c", Version: "7", State: "UNAVAILABLE"}, {Name: "d"}, {Name: "e", Version: "1", State: "UNKNOWN"},
			{Name: "f", Version: "1", State: "SOMETHING NEW"},
		}}))
		w := watch(t, s.connect(t))
		r := w.last(t)
		assert.Equal(t, map[string]health.ModelState{
			"a": health.ModelReady, "a:1": health.ModelUnavailable, "a:2": health.ModelReady,
			"b": health.ModelLoading, "b:1": health.ModelLoading, "b:2": health.ModelUnavailable,
			"c": health.ModelUnavailable, "c:7": health.ModelUnavailable,
			"d": health.ModelAbsent, "e": health.ModelAbsent, "e:1": health.ModelAbsent,
			"f": health.ModelUnknown, "f:1": health.ModelUnknown,
		}, states(t, r))
		assert.True(t, r.Complete)
		assert.Equal(t, health.No, r.OnDemand)
		assert.Equal(t, 1, s.called(methodStatistics), "asked once")
	})
}

func TestStateThatChangesBetweenTwoCalls(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]health.ServerState{
		"Server exiting": health.ServerDraining, "Server not ready": health.ServerNotReady,
	} {
		synctest.Test(t, func(t *testing.T) {
			var s server
			s.set(methodServerReady, ready)
			s.set(methodStatistics, fails(codes.Unavailable, text))
			r := watch(t, s.connect(t)).last(t)
			assert.Equal(t, want, r.Server)
			assert.Empty(t, r.Models)
			assert.False(t, r.Complete)
		})
	}
}

func TestCallsHaveDeadlines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s server
		s.set(methodServerReady, ready)
		s.set(methodStatistics, func(ctx context.Context, req *asked) (proto.Message, error) {
			if s.called(methodStatistics) > 1 {
				return never(ctx, req)
			}
			return statsList(stats("m", "1", 1)), nil
		})
		w := watch(t, s.connect(t))
		require.Equal(t, 1, w.count())
		time.Sleep(interval*11/10 + minTimeout)
		reports, err := w.ended(t)
		assert.Equal(t, codes.DeadlineExceeded, status.Code(err))
		require.Equal(t, 2, reports)
		assert.Equal(t, health.Report{Server: health.ServerReady, Interval: interval}, w.reports[1],
			"what is known is said")
	})
}

package fleet

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	gpustatsv1 "github.com/mlbalancer/mlbalancer/proto/mlbalancer/gpustats/v1"
)

// getReport asks the first server for its report.
func getReport(t *testing.T, f *Fleet) *gpustatsv1.NodeReport {
	t.Helper()
	r, err := gpustatsv1.NewGPUStatsClient(channel(t, f, 0)).Get(testContext(t), &gpustatsv1.GetRequest{})
	require.NoError(t, err)
	return r
}

// seconds returns a duration in wall-clock seconds, and -1 if it is not there.
func seconds(d *durationpb.Duration) float64 {
	if d == nil {
		return -1
	}
	return d.AsDuration().Seconds()
}

func TestGPUStats(t *testing.T) {
	inBubble(t, exact(Config{Servers: 1, Slots: 3, Scale: 0.5, Signals: GPUStats}), func(t *testing.T, f *Fleet) {
		s, c := f.Servers[0], client(t, f, 0)
		r := getReport(t, f)
		assert.Equal(t, gpustatsv1.ServerState_SERVER_STATE_READY, r.GetState())
		assert.True(t, r.GetModelsComplete() && r.GetLoadsOnDemand())
		assert.Empty(t, r.GetModels())
		assert.EqualValues(t, 4, r.GetConcurrency())
		require.NotNil(t, r.InFlight)
		assert.Zero(t, r.GetInFlight()+r.GetWaiting()+r.GetConnections())
		assert.Zero(t, seconds(r.GetLaneFreeIn()))
		assert.Equal(t, 2.5, seconds(r.GetLoadTime()))
		assert.Equal(t, gpustatsv1.Victim_KIND_ROOM, r.GetVictim().GetKind())
		require.Len(t, r.GetGpus(), 1)
		assert.EqualValues(t, 24<<30, r.GetGpus()[0].GetMemoryTotalBytes())
		assert.Zero(t, r.GetGpus()[0].GetMemoryUsedBytes())

		s.Preload("old", "used")
		_, err := c.Infer(t.Context(), NewRequest("used", time.Second))
		require.NoError(t, err)
		for range 6 { // on four workers
			go c.Infer(t.Context(), NewRequest("used", 20*time.Second))
		}
		synctest.Wait()
		for _, cold := range []string{"first", "second"} {
			go c.Infer(t.Context(), NewRequest(cold, 0))
			synctest.Wait()
		}
		time.Sleep(time.Second / 2) // virtual; 1 s of model time
		r = getReport(t, f)
		assert.EqualValues(t, 6, r.GetInFlight())
		assert.EqualValues(t, 2+2, r.GetWaiting())
		assert.EqualValues(t, 8, r.GetConnections())
		assert.Equal(t, 1., r.GetUtilization())
		assert.EqualValues(t, 24<<30, r.GetGpus()[0].GetMemoryUsedBytes())
		assert.InDelta(t, 2+2.5, seconds(r.GetLaneFreeIn()), 1e-6)
		type model struct {
			name                 string
			state                gpustatsv1.ModelState
			eta, service         float64
			bytes, pend, running int64
		}
		var got []model
		for _, m := range r.GetModels() {
			got = append(got, model{m.GetName(), m.GetState(), seconds(m.GetLoadEta()), seconds(m.GetServiceTime()),
				m.GetResidentBytes(), m.GetPending(), m.GetRunning()})
		}
		assert.Equal(t, []model{
			{"first", gpustatsv1.ModelState_MODEL_STATE_LOADING, 2, -1, 0, 1, 0},
			{"old", gpustatsv1.ModelState_MODEL_STATE_READY, -1, -1, 8 << 30, 0, 0},
			{"second", gpustatsv1.ModelState_MODEL_STATE_LOADING, 4.5, -1, 0, 1, 0},
			{"used", gpustatsv1.ModelState_MODEL_STATE_READY, -1, .5, 8 << 30, 2, 4},
		}, got)
		assert.Equal(t, gpustatsv1.Victim_KIND_IDLE, r.GetVictim().GetKind())
		assert.Equal(t, "old", r.GetVictim().GetModel())
		assert.InDelta(t, 1, seconds(r.GetVictim().GetLastUsedAge()), 1e-6, "since it was put there, a second ago")

		_, err = c.Infer(t.Context(), NewRequest("old", 0))
		require.NoError(t, err)
		s.Drain()
		assert.Equal(t, gpustatsv1.ServerState_SERVER_STATE_DRAINING, getReport(t, f).GetState())
		require.NoError(t, s.Restart())
		assert.Empty(t, getReport(t, f).GetModels(), "memory is lost")
	})
}

func TestGPUStatsOfBusyMemory(t *testing.T) {
	inBubble(t, exact(Config{Servers: 1, Slots: 1, Signals: GPUStats}), func(t *testing.T, f *Fleet) {
		s, c := f.Servers[0], client(t, f, 0)
		s.Preload("m")
		go c.Infer(t.Context(), NewRequest("m", 10*time.Second))
		synctest.Wait()
		v := getReport(t, f).GetVictim()
		assert.Equal(t, gpustatsv1.Victim_KIND_BUSY, v.GetKind())
		assert.Equal(t, "m", v.GetModel())
		assert.Nil(t, v.LastUsedAge)
		go c.Infer(t.Context(), NewRequest("n", 0))
		synctest.Wait()
		r := getReport(t, f)
		require.Len(t, r.GetModels(), 2)
		assert.Equal(t, gpustatsv1.ModelState_MODEL_STATE_UNLOADING, r.GetModels()[0].GetState())
		assert.Equal(t, gpustatsv1.ModelState_MODEL_STATE_LOADING, r.GetModels()[1].GetState())
		assert.Equal(t, 5., seconds(r.GetModels()[1].GetLoadEta()))
		assert.Equal(t, gpustatsv1.Victim_KIND_BUSY, r.GetVictim().GetKind())
		assert.Nil(t, r.GetVictim().Model)
	})
}

func TestGPUStatsInExplicitMode(t *testing.T) {
	inBubble(t, exact(Config{Servers: 1, Slots: 1, Explicit: true, Signals: GPUStats}), func(t *testing.T, f *Fleet) {
		c := client(t, f, 0)
		assert.Equal(t, gpustatsv1.Victim_KIND_ROOM, getReport(t, f).GetVictim().GetKind())
		require.NoError(t, c.Load(t.Context(), "a"))
		require.Error(t, c.Load(t.Context(), "b"))
		r := getReport(t, f)
		require.NotNil(t, r.LoadsOnDemand)
		assert.False(t, r.GetLoadsOnDemand())
		assert.Nil(t, r.GetVictim(), "nothing leaves by itself")
		require.Len(t, r.GetModels(), 2)
		assert.Equal(t, gpustatsv1.ModelState_MODEL_STATE_READY, r.GetModels()[0].GetState())
		assert.Equal(t, gpustatsv1.ModelState_MODEL_STATE_UNAVAILABLE, r.GetModels()[1].GetState())
		require.NoError(t, c.Unload(t.Context(), "a"))
		require.NoError(t, c.Unload(t.Context(), "b"))
		assert.Empty(t, getReport(t, f).GetModels())
	})
}

func TestGPUStatsReportsChanges(t *testing.T) {
	inBubble(t, exact(Config{Servers: 1, Signals: GPUStats}), func(t *testing.T, f *Fleet) {
		s, cc := f.Servers[0], channel(t, f, 0)
		req := &gpustatsv1.WatchRequest{Interval: durationpb.New(time.Minute)}
		watch, err := gpustatsv1.NewGPUStatsClient(cc).Watch(t.Context(), req)
		require.NoError(t, err)
		next := func(within time.Duration) *gpustatsv1.NodeReport {
			t.Helper()
			begin := time.Now()
			r, err := watch.Recv()
			require.NoError(t, err)
			assert.LessOrEqual(t, time.Since(begin), within)
			return r
		}
		next(0)
		soon := 50 * time.Millisecond
		go client(t, f, 0).Infer(t.Context(), NewRequest("m", 10*time.Second))
		r := next(soon)
		require.Len(t, r.GetModels(), 1)
		assert.Equal(t, gpustatsv1.ModelState_MODEL_STATE_LOADING, r.GetModels()[0].GetState())
		r = next(5*time.Second + soon)
		assert.Equal(t, gpustatsv1.ModelState_MODEL_STATE_READY, r.GetModels()[0].GetState())
		assert.EqualValues(t, 1, r.GetInFlight())
		assert.Zero(t, next(10*time.Second+soon).GetInFlight())
		s.NotReady(true)
		assert.Equal(t, gpustatsv1.ServerState_SERVER_STATE_UNHEALTHY, next(soon).GetState())
		require.NoError(t, f.Reset())
		r = next(soon)
		assert.Empty(t, r.GetModels())
		assert.Equal(t, gpustatsv1.ServerState_SERVER_STATE_READY, r.GetState())
		begin := time.Now()
		s.GracefulStop()
		assert.Zero(t, time.Since(begin), "does not wait for the watch")
		_, err = watch.Recv()
		assert.Equal(t, codes.Unavailable, status.Code(err))
	})
}

func TestGPUStatsLies(t *testing.T) {
	inBubble(t, exact(Config{Servers: 1, Slots: 1, Workers: 1, Signals: GPUStats | OIP}), func(t *testing.T, f *Fleet) {
		s, c := f.Servers[0], client(t, f, 0)
		s.Preload("m")
		go c.Infer(t.Context(), NewRequest("m", time.Minute))
		go c.Infer(t.Context(), NewRequest("m", time.Minute))
		synctest.Wait()
		s.Lie(GPUStats, Idle)
		r := getReport(t, f)
		assert.Zero(t, r.GetInFlight()+r.GetWaiting()+r.GetConnections())
		assert.Zero(t, r.GetUtilization())
		require.Len(t, r.GetModels(), 1)
		assert.Nil(t, r.GetModels()[0].Running)

		s.Lie(GPUStats, Busy)
		r = getReport(t, f)
		assert.EqualValues(t, 8, r.GetInFlight())
		assert.Equal(t, 50., seconds(r.GetLaneFreeIn()))

		s.Lie(GPUStats|OIP, Empty)
		r = getReport(t, f)
		assert.EqualValues(t, 2, r.GetInFlight(), "one lie at a time")
		assert.Empty(t, r.GetModels())
		assert.True(t, r.GetModelsComplete())
		assert.Zero(t, r.GetGpus()[0].GetMemoryUsedBytes())
		assert.Equal(t, gpustatsv1.Victim_KIND_ROOM, r.GetVictim().GetKind())
		ready, err := c.ModelReady(t.Context(), "m")
		require.NoError(t, err)
		assert.False(t, ready)
		stats, err := c.Statistics(t.Context(), "")
		require.NoError(t, err)
		assert.Empty(t, stats)
		index, err := c.Index(t.Context(), false)
		require.NoError(t, err)
		assert.Empty(t, index)

		s.Lie(GPUStats|OIP, Truth)
		assert.Len(t, getReport(t, f).GetModels(), 1)
		ready, err = c.ModelReady(t.Context(), "m")
		require.NoError(t, err)
		assert.True(t, ready)
	})
}

package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mlbalancer/mlbalancer/health"
)

const second = time.Second

func TestAColdCallWaitsForItsLoadAndOthersGoOn(t *testing.T) {
	t.Parallel()
	f := machine(2)
	s := f.servers[0]
	s.place(1, false)
	cold := f.call(0, 0, second)
	warm := f.call(0, 1, second)
	assert.Equal(t, stageWaiting, cold.stage)
	assert.Equal(t, stageRunning, warm.stage)
	assert.Equal(t, 1, s.active(), "one that waits for a load is no load")
	f.settle(s.loadEnds)
	assert.Equal(t, stageRunning, cold.stage)
	assert.True(t, cold.cold)
	f.settle(s.loadEnds + second)
	assert.Equal(t, []Outcome{OutcomeSuccess, OutcomeSuccess}, f.policy.(*fixed).ended)
}

func TestTheRunQueueIsFirstInFirstOut(t *testing.T) {
	t.Parallel()
	f := machine(2)
	f.servers[0].place(0, false)
	a, b, c := f.call(0, 0, second), f.call(0, 0, second), f.call(0, 0, second)
	assert.Equal(t, []stage{stageRunning, stageQueued, stageQueued}, []stage{a.stage, b.stage, c.stage})
	f.settle(second)
	assert.Equal(t, []stage{stageRunning, stageQueued}, []stage{b.stage, c.stage})
}

func TestLoadsAreSerial(t *testing.T) {
	t.Parallel()
	f := machine(2)
	s := f.servers[0]
	f.call(0, 0, second)
	f.call(0, 1, second)
	first := s.loadEnds
	require.Len(t, s.lane, 2)
	assert.Equal(t, first+f.Load, s.laneFree(0))
	assert.Equal(t, first+f.Load, s.eta(0, s.models[1]))
	f.settle(first)
	require.Len(t, s.lane, 1)
	assert.Greater(t, s.loadEnds, first)
}

func TestTheLeastRecentlyUsedIdleModelIsEvicted(t *testing.T) {
	t.Parallel()
	f := machine(2)
	s := f.servers[0]
	s.place(0, false)
	s.place(1, false)
	f.call(0, 0, second) // the older one, but busy
	f.call(0, 2, second)
	assert.Equal(t, resident, s.models[0].state)
	assert.Equal(t, absent, s.models[1].state)
	assert.Equal(t, inLane, s.models[2].state)
	assert.Equal(t, 2, s.occupied)
}

func TestABusyModelIsDrainedBeforeItIsEvicted(t *testing.T) {
	t.Parallel()
	f := machine(1)
	s := f.servers[0]
	s.place(0, false)
	f.call(0, 0, second)
	f.call(0, 1, second)
	assert.Equal(t, unloading, s.models[0].state)
	assert.False(t, s.loading)
	again := f.call(0, 0, second) // it is on its way out: this one waits for its next load
	assert.Equal(t, stageWaiting, again.stage)
	f.settle(second)
	assert.True(t, s.loading)
	assert.Equal(t, inLane, s.models[0].state)
	require.Len(t, s.lane, 2)
	f.settle(30 * second)
	assert.Len(t, f.policy.(*fixed).ended, 3)
}

func TestPinnedModelsStay(t *testing.T) {
	t.Parallel()
	f := machine(1)
	s := f.servers[0]
	s.place(0, true)
	f.call(0, 1, second)
	f.settle(30 * second)
	assert.Equal(t, resident, s.models[0].state)
	assert.False(t, s.loading)
}

func TestCallsThatAreCancelledLeaveWhereverTheyAre(t *testing.T) {
	t.Parallel()
	f := machine(1)
	s := f.servers[0]
	s.place(0, false)
	running, queued := f.call(0, 0, second), f.call(0, 0, second)
	waiting := f.call(0, 1, second)
	for _, c := range []*Call{queued, waiting, running} {
		s.cancel(0, c)
		f.ended(c, OutcomeExpired)
	}
	assert.Zero(t, s.active())
	assert.Zero(t, s.waits)
	assert.Empty(t, s.lane, "a load that nobody waits for is not begun")
	f.settle(10 * second)
	assert.Equal(t, []Outcome{OutcomeExpired, OutcomeExpired, OutcomeExpired}, f.policy.(*fixed).ended)
	f.call(10*second, 0, second)
	f.settle(30 * second)
	assert.Equal(t, OutcomeSuccess, f.policy.(*fixed).ended[3])
}

func TestASlowServerTakesLongerForWorkAndLoads(t *testing.T) {
	t.Parallel()
	f := machine(1)
	s := f.servers[0]
	s.slow = 10
	f.call(0, 0, second)
	assert.Greater(t, s.loadEnds, 20*second)
	ready := s.loadEnds
	f.settle(ready + 9*second)
	assert.Empty(t, f.policy.(*fixed).ended)
	f.settle(ready + 10*second)
	assert.Len(t, f.policy.(*fixed).ended, 1)
}

func TestReportsSayWhatTheServerIs(t *testing.T) {
	t.Parallel()
	f := machine(2)
	s := f.servers[0]
	s.place(0, false)
	s.place(1, false)
	f.call(0, 0, 2*second)
	f.call(0, 0, 2*second)
	f.call(0, 2, second)
	var r Report
	s.sample(second)
	f.now = second
	s.report(second, &r)
	assert.Equal(t, 2, r.Load.Active)
	assert.Equal(t, 2, r.Load.Waiting, "one for a worker, one for a load")
	assert.Equal(t, health.VictimBusy, r.Load.Victim)
	assert.Zero(t, r.Load.MemoryFree)
	assert.Equal(t, s.loadEnds-second, r.Load.LaneFree)
	assert.InDelta(t, 1-1/2.718, r.Load.Utilization, .01)
	require.Len(t, r.Models, 2)
	assert.Equal(t, health.Model{Name: f.names[0], State: health.ModelReady}, r.Models[0])
	assert.Equal(t, health.Model{Name: f.names[2], State: health.ModelLoading, ETA: s.loadEnds - second}, r.Models[1])
	assert.True(t, r.Complete)

	f.Reports = Reports{Mode: Poll, Every: 5 * second}
	s.report(second, &r)
	assert.Zero(t, r.Load.Has, "a poll says which models there are, and nothing else")
	assert.Len(t, r.Models, 2)
	assert.Equal(t, 5*second, r.Interval)
}

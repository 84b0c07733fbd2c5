package fleet

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const loadTime = 5 * time.Second

// rig is a gpu whose loads take loadTime, with a log of what happened in its memory.
type rig struct {
	*gpu
	log []string
}

func newRig(workers, slots int) *rig {
	r := &rig{gpu: newGPU(workers, slots, &counters{})}
	r.loadTime = func() time.Duration { return loadTime }
	r.record = func(at time.Duration, model string, kind EventKind) {
		r.log = append(r.log, fmt.Sprintf("%v %s %s", at, model, kind))
	}
	return r
}

// settle lets everything happen that is going to.
func (r *rig) settle() {
	for {
		at, ok := r.next()
		if !ok {
			return
		}
		r.advance(at)
	}
}

func (r *rig) resident() (names []string) {
	for _, m := range r.inOrder() {
		if m.state == resident {
			names = append(names, m.name)
		}
	}
	return names
}

func isDone(j *job) bool {
	select {
	case <-j.finished:
		return true
	default:
		return false
	}
}

func TestWorkersShareOneFIFOQueue(t *testing.T) {
	g := newRig(2, 1)
	require.True(t, g.place("m"))
	a := g.submit("m", 3*time.Second)
	b := g.submit("m", time.Second)
	c := g.submit("m", time.Second)
	d := g.submit("m", time.Second)
	assert.Len(t, g.running, 2)
	assert.Equal(t, 2, g.queued)

	g.advance(time.Second - 1)
	assert.False(t, isDone(b))
	g.advance(time.Second)
	assert.True(t, isDone(b))
	assert.Equal(t, running, c.stage)
	assert.Equal(t, queued, d.stage)

	g.settle()
	assert.Equal(t, []time.Duration{3 * time.Second, time.Second, 2 * time.Second, 3 * time.Second},
		[]time.Duration{a.ends, b.ends, c.ends, d.ends})
	assert.Equal(t, 6*time.Second, g.busy())
	assert.Equal(t, counters{hits: 4, busy: 6 * time.Second}, *g.count)
}

func TestWorkOfNoTimeIsDoneAtOnce(t *testing.T) {
	g := newRig(1, 1)
	g.place("m")
	assert.True(t, isDone(g.submit("m", 0)))
	g.submit("m", time.Second)
	j := g.submit("m", 0)
	assert.False(t, isDone(j), "behind a running one")
	g.advance(time.Second)
	assert.True(t, isDone(j))
}

func TestBusyCountsRequestsThatStillRun(t *testing.T) {
	g := newRig(2, 1)
	g.place("m")
	g.submit("m", 10*time.Second)
	g.submit("m", time.Second)
	g.advance(4 * time.Second)
	assert.Equal(t, 5*time.Second, g.busy())
}

func TestCancel(t *testing.T) {
	t.Run("queued", func(t *testing.T) {
		g := newRig(1, 1)
		g.place("m")
		g.submit("m", time.Second)
		b := g.submit("m", time.Second)
		c := g.submit("m", time.Second)
		assert.True(t, g.cancel(b))
		assert.False(t, g.cancel(b), "twice")
		assert.Equal(t, 1, g.queued)
		g.settle()
		assert.Equal(t, 2*time.Second, c.ends)
		assert.Zero(t, g.model("m").holds)
		assert.Equal(t, 2*time.Second, g.busy())
	})
	t.Run("running frees its worker", func(t *testing.T) {
		g := newRig(1, 1)
		g.place("m")
		a := g.submit("m", time.Minute)
		b := g.submit("m", time.Second)
		g.advance(3 * time.Second)
		assert.True(t, g.cancel(a))
		g.settle()
		assert.Equal(t, 4*time.Second, b.ends)
		assert.Equal(t, 4*time.Second, g.busy())
	})
	t.Run("done", func(t *testing.T) {
		g := newRig(1, 1)
		g.place("m")
		assert.False(t, g.cancel(g.submit("m", 0)))
	})
	t.Run("a load that nobody waits for is not begun", func(t *testing.T) {
		g := newRig(1, 3)
		g.submit("a", 0)
		b1, b2 := g.submit("b", 0), g.submit("b", 0)
		g.submit("c", 0)
		g.cancel(b1)
		g.cancel(b2)
		g.settle()
		assert.Equal(t, []string{"a", "c"}, g.resident())
		assert.Equal(t, 2*loadTime, g.now)
	})
	t.Run("a load that has begun is finished", func(t *testing.T) {
		g := newRig(1, 1)
		g.cancel(g.submit("a", 0))
		g.settle()
		assert.Equal(t, []string{"a"}, g.resident())
	})
	t.Run("the last request of a model that drains", func(t *testing.T) {
		g := newRig(1, 1)
		g.place("a")
		a := g.submit("a", time.Minute)
		b := g.submit("b", time.Second)
		g.advance(time.Second)
		g.cancel(a)
		g.settle()
		assert.Equal(t, time.Second+loadTime+time.Second, b.ends)
	})
	t.Run("who waits for memory, and then nobody does", func(t *testing.T) {
		g := newRig(1, 1)
		g.place("a")
		g.submit("a", time.Second)
		g.cancel(g.submit("b", 0))
		c := g.submit("c", 0)
		g.settle()
		assert.Equal(t, time.Second+loadTime, c.ends)
		assert.EqualValues(t, 1, g.count.loads)
	})
}

func TestSlow(t *testing.T) {
	g := newRig(2, 2)
	g.place("m")
	before := g.submit("m", time.Second)
	g.slow = 10
	during := g.submit("m", time.Second)
	cold := g.submit("cold", time.Second)
	g.advance(11 * time.Second)
	assert.Equal(t, time.Second, before.ends, "started at normal speed")
	assert.Equal(t, 10*time.Second, during.ends)
	g.slow = 1
	g.settle()
	assert.Equal(t, 10*loadTime+time.Second, cold.ends, "the load began slowly, the work did not")
}

// check compares what the gpu keeps count of with what there is to count.
func (r *rig) check(t *testing.T, jobs []*job) {
	t.Helper()
	var byStage [cancelled + 1]int
	holds := make(map[*model]int)
	for _, j := range jobs {
		byStage[j.stage]++
		if ended := j.stage == done || j.stage == cancelled; ended != isDone(j) {
			require.Equal(t, ended, isDone(j), "a job of %s", j.model.name)
		}
		if j.stage == queued || j.stage == running {
			holds[j.model]++
		}
	}
	require.Len(t, r.running, byStage[running])
	require.Equal(t, byStage[queued], r.queued)
	require.Equal(t, byStage[waiting], r.waits)
	require.LessOrEqual(t, len(r.running), r.workers)
	if r.queued > 0 {
		require.Len(t, r.running, r.workers, "a worker is free while a request waits")
	}
	occupied := 0
	if r.loading {
		occupied++
	}
	for _, m := range r.models {
		require.Equal(t, holds[m], m.holds, m.name)
		if m.inMemory() {
			occupied++
		} else {
			require.Zero(t, m.holds, m.name)
		}
		if m.state == unloading {
			require.NotZero(t, m.holds, "%s could have gone", m.name)
		}
		if len(m.waiting) > 0 {
			require.Contains(t, []modelState{inLane, unloading}, m.state, "nobody loads %s", m.name)
		}
	}
	require.Equal(t, occupied, r.occupied)
	require.LessOrEqual(t, r.occupied, r.slots)
	require.Equal(t, len(r.lane) > 0, r.loading || r.anyUnloading() && len(r.lane) > 0, "the lane stands still")
}

// TestAnyHistoryAddsUp runs random requests, cancellations and evictions, and a twin that learns the time only when it must act.
func TestAnyHistoryAddsUp(t *testing.T) {
	for seed := range uint64(25) {
		r := rand.New(rand.NewPCG(seed, 0))
		g, twin := newRig(1+r.IntN(4), 1+r.IntN(4)), newRig(0, 0)
		twin.workers, twin.slots = g.workers, g.slots
		var jobs, twins []*job
		now := time.Duration(0)
		for range 400 {
			now += time.Duration(r.ExpFloat64() * float64(300*time.Millisecond))
			for { // g is told of each moment of its own, twin of all of them at once
				at, ok := g.next()
				if !ok || at > now {
					break
				}
				g.advance(at)
			}
			g.advance(now)
			twin.advance(now)
			model := string(rune('a' + r.IntN(7)))
			switch op := r.IntN(20); {
			case op < 14:
				work := time.Duration(r.ExpFloat64() * float64(time.Second))
				jobs, twins = append(jobs, g.submit(model, work)), append(twins, twin.submit(model, work))
			case op < 18 && len(jobs) > 0:
				i := len(jobs) - 1 - r.IntN(min(10, len(jobs)))
				assert.Equal(t, g.cancel(jobs[i]), twin.cancel(twins[i]))
			case op == 18:
				assert.Equal(t, g.unload(model), twin.unload(model))
			default:
				assert.Equal(t, g.place(model), twin.place(model))
			}
			g.check(t, jobs)
		}
		g.settle()
		twin.advance(now + time.Hour)
		g.check(t, jobs)
		completed := 0
		for i, j := range jobs {
			require.Contains(t, []stage{done, cancelled}, j.stage, "seed %d: job %d is left over", seed, i)
			require.Equal(t, j.ends, twins[i].ends, "seed %d: job %d", seed, i)
			if j.stage == done {
				completed++
			}
		}
		require.EqualValues(t, len(jobs), g.count.hits+g.count.coldCalls)
		served := uint64(0)
		for _, m := range g.models {
			served += m.served.count
		}
		require.EqualValues(t, completed, served)
		require.Equal(t, g.log, twin.log)
		require.Equal(t, *g.count, *twin.count)
	}
}

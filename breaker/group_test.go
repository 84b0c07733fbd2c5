package breaker

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func (w *world) openCount() (n int) {
	for _, b := range w.members {
		if b.State() != Closed {
			n++
		}
	}
	return n
}

// BRK-06: every endpoint fails all of its calls.
func TestGroupOpensNoMoreThanItsShare(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 10} {
		for _, percent := range []int{0, 10, 34, 50, 67, 100} {
			w := newWorld(t, n, func(c *Config) { c.MaxEjectionPercent = percent })
			limit := n * percent / 100
			most := 0
			for range 500 {
				for _, b := range w.members {
					if p, ok := b.Allow(w.now, time.Second); ok {
						b.Done(p, w.now, Failure)
					}
					open, allowed := w.group.Open()
					require.Equal(t, w.openCount(), open)
					require.Equal(t, limit, allowed)
					require.LessOrEqual(t, open, limit)
					most = max(most, open)
				}
				w.pass(50 * time.Millisecond)
			}
			require.Equal(t, limit, most, "n=%d, %d %%", n, percent)
		}
	}
}

func TestGroupShareIsExactUnderConcurrency(t *testing.T) {
	c := DefaultConfig()
	c.MaxEjectionPercent = 67
	c.OpenFor = Duration(time.Millisecond)
	c.MaxOpenFor = Duration(5 * time.Millisecond)
	g := NewGroup(c, rand.Uint64)
	members := make([]*Breaker, 10)
	for i := range members {
		members[i] = New(fmt.Sprint("e", i))
	}
	g.Set(0, members)
	var clock atomic.Int64
	var read atomic.Uint64
	var calling, ticking sync.WaitGroup
	var done atomic.Bool
	most := 0
	ticking.Go(func() {
		open := map[string]bool{}
		for !done.Load() {
			g.Tick(clock.Add(int64(100 * time.Microsecond)))
			g.Drain(func(e Event) { // in order, so this is what was open at each moment
				if e.To == Closed {
					delete(open, e.Endpoint)
				} else {
					open[e.Endpoint] = true
				}
				most = max(most, len(open))
			})
			read.Store(g.events.read)
			n, limit := g.Open()
			assert.LessOrEqual(t, n, limit)
		}
	})
	for id := range 4 {
		calling.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(id), 1))
			for range 20_000 {
				for g.events.next.Load()-read.Load() > maxEvents/2 {
					runtime.Gosched()
				}
				b := members[rng.IntN(len(members))]
				now := clock.Add(int64(20 * time.Microsecond))
				if p, ok := b.Allow(now, 50*time.Millisecond); ok {
					b.Done(p, now, []Outcome{Failure, Failure, Failure, Success}[rng.IntN(4)])
				}
			}
		})
	}
	calling.Wait()
	done.Store(true)
	ticking.Wait()
	assert.Equal(t, 6, most)
	open, limit := g.Open()
	assert.Equal(t, 6, limit)
	assert.Zero(t, g.Lost())
	n := 0
	for _, b := range members {
		if b.State() != Closed {
			n++
		}
	}
	assert.Equal(t, n, open, "no place is lost")
}

func TestGroupWorstOfWaitingOpensFirst(t *testing.T) {
	w := newWorld(t, 4, func(c *Config) {
		c.MaxEjectionPercent = 25
		c.ConsecutiveFailures = 0
	})
	w.calls(w.members[0], 10, Failure)
	require.Equal(t, Open, w.members[0].State())
	for i, failures := range []int{6, 9, 7} {
		b := w.members[1+i]
		w.calls(b, 10-failures, Success)
		w.calls(b, failures, Failure)
		require.Equal(t, Closed, b.State())
		require.True(t, b.Counts().Waiting)
		require.Equal(t, Usable, b.Status(w.now), "one that waits takes calls")
	}
	w.pass(100 * time.Millisecond)
	require.Equal(t, 1, w.openCount())
	w.wait(w.members[0].OpenLeft(w.now))
	w.closeAgain(w.members[0])
	w.calls(w.members[3], 5, Failure)
	require.Equal(t, 0, w.openCount(), "none takes the place before the worst has had its chance")
	w.tick()
	assert.Equal(t, Open, w.members[2].State())
	assert.Equal(t, Reason{Rule: FailureRatio, Count: 9, Calls: 10, Within: 30 * time.Second}, w.lastReason())
	assert.Equal(t, 1, w.openCount())
}

func TestGroupWaitingEndsWhenItRecovers(t *testing.T) {
	w := newWorld(t, 2, func(c *Config) { c.MaxEjectionPercent = 50 })
	w.open(w.members[0])
	b := w.members[1]
	w.calls(b, 5, Failure)
	w.pass(200 * time.Millisecond)
	require.True(t, b.Counts().Waiting)
	w.call(b, Success)
	w.tick()
	assert.False(t, b.Counts().Waiting)
	w.wait(w.members[0].OpenLeft(w.now))
	w.closeAgain(w.members[0])
	w.pass(time.Second)
	assert.Equal(t, Closed, b.State())
	assert.Len(t, w.rules(), 3)
}

func TestGroupMembershipMovesTheLimit(t *testing.T) {
	w := newWorld(t, 4, func(c *Config) { c.MaxEjectionPercent = 50 })
	w.open(w.members[0])
	w.wait(500 * time.Millisecond)
	w.open(w.members[1])
	open, limit := w.group.Open()
	require.Equal(t, []int{2, 2}, []int{open, limit})

	w.group.Set(w.now, w.members[:2]) // only one may be open now: the one that is longer away from closing
	open, limit = w.group.Open()
	assert.Equal(t, []int{1, 1}, []int{open, limit})
	assert.Equal(t, Closed, w.members[0].State())
	assert.Equal(t, Open, w.members[1].State())
	assert.Equal(t, Reason{Rule: OverCap, Count: 1}, w.lastReason())

	w.group.Set(w.now, w.members[2:])
	open, limit = w.group.Open()
	assert.Equal(t, []int{0, 1}, []int{open, limit})
	w.refused(w.members[1])
	assert.Equal(t, Refusing, w.members[1].Status(w.now+int64(time.Hour)), "outside a group nothing becomes due")
	assert.Equal(t, int64(math.MaxInt64), w.members[1].Next(w.now))

	w.group.Set(w.now, w.members)
	open, limit = w.group.Open()
	assert.Equal(t, []int{1, 2}, []int{open, limit})
	w.wait(w.members[1].OpenLeft(w.now))
	w.closeAgain(w.members[1])
	open, _ = w.group.Open()
	assert.Zero(t, open)

	c := w.group.Config()
	c.MaxEjectionPercent = 0
	w.open(w.members[2])
	w.group.Configure(w.now, c)
	open, limit = w.group.Open()
	assert.Equal(t, []int{0, 0}, []int{open, limit})
	assert.Equal(t, Closed, w.members[2].State())
}

// A channel that goes idle and comes back has another group, whose breakers are those of before.
func TestGroupTakesOverOpenBreakers(t *testing.T) {
	w := newWorld(t, 4, nil)
	w.open(w.members[0])
	probe := func() Permit {
		w.open(w.members[1])
		w.wait(w.members[1].OpenLeft(w.now))
		return w.begin(w.members[1], time.Second)
	}()
	next := newWorld(t, 0, nil)
	w.group.Set(w.now, nil)
	next.now = w.now
	next.group.Set(next.now, w.members)
	open, _ := w.group.Open()
	assert.Zero(t, open)
	open, _ = next.group.Open()
	assert.Equal(t, 2, open)
	w.members[1].Done(probe, next.now, Success)
	next.call(w.members[1], Success, Success)
	assert.Equal(t, Closed, w.members[1].State())
	open, _ = next.group.Open()
	assert.Equal(t, 1, open)
	assert.Equal(t, []Rule{Probed}, next.rules())
}

func TestGroupConcurrentMembership(t *testing.T) {
	c := DefaultConfig()
	c.OpenFor, c.MaxOpenFor = Duration(time.Millisecond), Duration(2*time.Millisecond)
	groups := []*Group{NewGroup(c, rand.Uint64), NewGroup(c, rand.Uint64)}
	members := make([]*Breaker, 8)
	for i := range members {
		members[i] = New(fmt.Sprint("e", i))
	}
	var clock atomic.Int64
	var calling sync.WaitGroup
	var done atomic.Bool
	for id := range 3 {
		calling.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(id), 2))
			for !done.Load() {
				b := members[rng.IntN(len(members))]
				now := clock.Add(int64(20 * time.Microsecond))
				if p, ok := b.Allow(now, 50*time.Millisecond); ok {
					b.Done(p, now, []Outcome{Failure, Failure, Success}[rng.IntN(3)])
				}
			}
		})
	}
	rng := rand.New(rand.NewPCG(3, 3))
	for range 2000 {
		from, to := groups[rng.IntN(2)], groups[rng.IntN(2)]
		now := clock.Add(int64(time.Millisecond))
		from.Set(now, nil)
		if from != to {
			to.Set(now, nil)
		}
		to.Set(now, members[:rng.IntN(len(members)+1)])
		to.Tick(now)
	}
	done.Store(true)
	calling.Wait()
	for _, g := range groups {
		n := 0
		for _, b := range members {
			if b.group.Load() == g && b.State() != Closed {
				n++
			}
		}
		open, _ := g.Open()
		assert.Equal(t, n, open)
	}
}

func TestGroupTickReportsWhatWasFreed(t *testing.T) {
	w := newWorld(t, 1, nil)
	b := w.members[0]
	w.open(b)
	w.refused(b)
	assert.False(t, w.tick())
	assert.Equal(t, b.Next(w.now), w.group.Next(w.now))
	w.now = w.group.Next(w.now) - 1
	assert.False(t, w.tick())
	w.wait(1)
	assert.True(t, w.tick(), "it is due")
	assert.False(t, w.tick())

	probes := []Permit{w.begin(b, time.Second), w.begin(b, time.Second), w.begin(b, 3*time.Second)}
	assert.False(t, w.tick())
	b.Done(probes[0], w.now, Unsent)
	assert.True(t, w.tick(), "a probe was given back")
	assert.False(t, w.tick())
	probes[0] = w.begin(b, time.Second)
	assert.False(t, w.tick())
	b.Done(probes[0], w.now, Success)
	b.Done(probes[1], w.now, Neutral)
	assert.True(t, w.tick())
	assert.False(t, w.tick())
	w.now = w.group.Next(w.now)
	assert.True(t, w.tick(), "more are granted")
	w.call(b, Success)
	b.Done(probes[2], w.now, Success)
	require.Equal(t, Closed, b.State())
	assert.True(t, w.tick(), "it has closed")
	assert.False(t, w.tick())
	assert.Equal(t, int64(math.MaxInt64), w.group.Next(w.now))
}

func TestGroupConfigureKeepsState(t *testing.T) {
	w := newWorld(t, 3, nil)
	b := w.members[0]
	w.open(b)
	left := b.OpenLeft(w.now)
	w.calls(w.members[1], 4, Failure)
	c := w.group.Config()
	c.OpenFor = Duration(10 * time.Second)
	c.ConsecutiveFailures = 7
	w.group.Configure(w.now, c)
	assert.Equal(t, c, w.group.Config())
	assert.Equal(t, left, b.OpenLeft(w.now))
	assert.Equal(t, 4, w.members[1].Counts().Failures)
	w.calls(w.members[1], 2, Failure)
	require.Equal(t, Closed, w.members[1].State())
	w.call(w.members[1], Failure)
	require.Equal(t, Open, w.members[1].State())
	assert.Equal(t, 10*time.Second, func() time.Duration { e, _ := w.members[1].Last(); return e.OpenFor }())

	w.calls(w.members[2], 4, Failure)
	c.Window = Duration(time.Minute)
	w.group.Configure(w.now, c)
	assert.Zero(t, w.members[2].Counts(), "a window of another length starts empty")
	for range 3 {
		w.wait(time.Second)
		w.call(w.members[2], Success, Failure)
	}
	assert.Equal(t, 6, w.members[2].Counts().Calls)
	w.pass(2 * time.Minute)
	assert.Zero(t, w.members[2].Counts())
}

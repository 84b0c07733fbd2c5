package breaker

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pairWorld is a pair in a group of one endpoint.
type pairWorld struct {
	*world
	pair *Pair
}

func newPairWorld(t *testing.T, edit func(*Config)) *pairWorld {
	w := newWorld(t, 1, edit)
	return &pairWorld{w, NewPair(w.members[0], "m")}
}

func (w *pairWorld) begin() Permit {
	p, ok := w.pair.Allow(w.now, time.Second)
	require.True(w.t, ok, "refused in state %v", w.pair.State())
	return p
}

func (w *pairWorld) call(outcomes ...Outcome) {
	for _, o := range outcomes {
		w.pair.Done(w.begin(), w.now, o)
	}
}

func (w *pairWorld) calls(n int, o Outcome) {
	for range n {
		w.call(o)
	}
}

func (w *pairWorld) refused() {
	_, ok := w.pair.Allow(w.now, time.Second)
	require.False(w.t, ok, "allowed in state %v", w.pair.State())
}

func (w *pairWorld) halfOpen() Permit {
	w.calls(5, Failure)
	require.Equal(w.t, Open, w.pair.State())
	w.wait(w.pair.OpenLeft(w.now))
	p := w.begin()
	require.True(w.t, p.Probe())
	return p
}

func TestPairOpensOnConsecutiveFailures(t *testing.T) {
	w := newPairWorld(t, func(c *Config) { c.FailureRatio = 0 })
	for range 20 {
		w.calls(4, Failure)
		w.call(Neutral, Unsent)
		w.calls(5, Success)
	}
	require.Equal(t, Closed, w.pair.State())
	w.calls(4, Failure)
	w.call(Neutral, Unsent, Failure)
	require.Equal(t, Open, w.pair.State())
	w.drain()
	require.Len(t, w.events, 1)
	assert.Equal(t, "e0, model m: closed to open: 5 calls failed in a row; for 1s", w.events[0].String())
	w.refused()
	assert.Equal(t, Refusing, w.pair.Status(w.now))
	assert.Equal(t, Closed, w.members[0].State(), "the endpoint is another matter")
	open, _ := w.group.Open()
	assert.Zero(t, open, "pairs are outside the limit")
}

func TestPairOpensOnFailureRatio(t *testing.T) {
	w := newPairWorld(t, nil)
	w.calls(100, Success) // before the first failure nothing is counted
	w.call(Failure, Failure, Success, Failure, Success, Failure, Success, Failure, Success)
	require.Equal(t, Closed, w.pair.State())
	w.call(Failure)
	require.Equal(t, Open, w.pair.State())
	assert.Equal(t, Reason{Rule: FailureRatio, Count: 6, Calls: 10, Within: 30 * time.Second}, w.lastReason())
}

func TestPairForgets(t *testing.T) {
	w := newPairWorld(t, nil)
	for range 200 { // a third fails, for longer than anything is remembered
		w.call(Success, Failure, Success)
		w.wait(time.Second)
	}
	require.Equal(t, Closed, w.pair.State())
	assert.False(t, w.pair.Idle(w.now))
	w.calls(3, Failure)
	w.wait(3 * time.Minute)
	assert.True(t, w.pair.Idle(w.now))
	w.call(Failure)
	require.Equal(t, Closed, w.pair.State(), "a row is counted in calls")
	w.call(Failure)
	require.Equal(t, Open, w.pair.State())
}

func TestPairCountsUpToItsLimit(t *testing.T) {
	w := newPairWorld(t, func(c *Config) { c.ConsecutiveFailures = 0 })
	w.call(Success, Failure)
	w.calls(20_000, Success)
	for range 20_000 {
		w.call(Success, Failure, Success)
	}
	require.Equal(t, Closed, w.pair.State())
	tally := unpack(w.pair.tally.Load())
	assert.InDelta(t, 1./3, float64(tally.failed)/float64(tally.calls), 0.01)
	for n := 0; w.pair.State() == Closed; n++ {
		require.Less(t, n, maxTally)
		w.call(Failure)
	}
}

func TestPairSlowIsNoFailure(t *testing.T) {
	w := newPairWorld(t, func(c *Config) { c.FailureRatio = 0 })
	for range 100 {
		w.calls(4, Failure)
		w.calls(5, Slow)
	}
	w.calls(100, Slow)
	require.Equal(t, Closed, w.pair.State())
	w.pair.Done(w.halfOpen(), w.now, Slow)
	w.call(Slow, Slow)
	assert.Equal(t, Closed, w.pair.State())
}

func TestPairHalvesAcrossTheEndOfTheCount(t *testing.T) {
	s := newSettings(DefaultConfig())
	half := int64(s.Window) / 2
	last := tally{}.add(s, 0, maxHalved*half, true)
	for range 7 {
		last = last.add(s, 0, maxHalved*half, true)
	}
	assert.Equal(t, uint(8), last.failed)
	assert.Equal(t, uint(4+1), last.add(s, 0, (maxHalved+1)*half, true).failed)
	assert.Equal(t, uint(2+1), last.add(s, 0, (maxHalved+2)*half, true).failed)
}

func TestPairHalfOpen(t *testing.T) {
	w := newPairWorld(t, nil)
	w.pair.Done(w.halfOpen(), w.now, Unsent)
	probes := []Permit{w.begin(), w.begin(), w.begin()}
	w.refused()
	w.tick()
	w.pair.Done(probes[0], w.now, Neutral)
	assert.True(t, w.tick())
	w.refused()
	w.pair.Done(probes[1], w.now, Success)
	w.pair.Done(probes[2], w.now, Failure)
	require.Equal(t, Open, w.pair.State())
	assert.InDelta(t, 2*time.Second, w.pair.OpenLeft(w.now), unit)
	assert.Equal(t, w.now+int64(w.pair.OpenLeft(w.now)), w.pair.Next(w.now))
	w.wait(w.pair.OpenLeft(w.now))
	require.Equal(t, Probing, w.pair.Status(w.now))
	hung := w.begin()
	w.call(Success)
	w.wait(time.Second + unit)
	assert.Equal(t, Refusing, w.pair.Status(w.now))
	w.pair.Tick(w.now)
	require.Equal(t, Open, w.pair.State())
	assert.Equal(t, ProbeExpired, w.lastReason().Rule)
	w.pair.Done(hung, w.now, Success)
	w.wait(w.pair.OpenLeft(w.now))
	w.calls(3, Success)
	require.Equal(t, Closed, w.pair.State())
	w.pair.Done(hung, w.now, Failure)
	assert.Equal(t, Usable, w.pair.Status(w.now))
}

func TestPairHasFourProbesInFlight(t *testing.T) {
	w := newPairWorld(t, func(c *Config) { c.HalfOpenProbes = 10 })
	probes := []Permit{w.halfOpen(), w.begin(), w.begin(), w.begin()}
	w.refused()
	assert.Equal(t, Refusing, w.pair.Status(w.now))
	for _, p := range probes {
		w.pair.Done(p, w.now, Success)
	}
	w.calls(5, Success)
	require.Equal(t, HalfOpen, w.pair.State())
	w.call(Success)
	assert.Equal(t, Closed, w.pair.State())
}

func TestPairLateResultsDoNotVote(t *testing.T) {
	w := newPairWorld(t, nil)
	late := []Permit{w.begin(), w.begin(), w.begin(), w.begin(), w.begin()}
	w.pair.Done(w.halfOpen(), w.now, Success)
	w.call(Success, Success)
	for _, p := range late {
		w.pair.Done(p, w.now, Failure)
	}
	assert.Equal(t, Closed, w.pair.State())
	w.pair.Done(Permit{}, w.now, Failure)
	w.calls(4, Failure)
	require.Equal(t, Closed, w.pair.State())
	w.call(Failure)
	assert.Equal(t, Open, w.pair.State())
}

func TestPairStartsAnewAfterSteady(t *testing.T) {
	w := newPairWorld(t, func(c *Config) { c.RampFor = 10 * time.Second })
	assert.True(t, w.pair.Idle(w.now))
	w.pair.Done(w.halfOpen(), w.now, Failure)
	w.wait(w.pair.OpenLeft(w.now))
	w.calls(3, Success)
	assert.InDelta(t, 0.1, w.pair.Ramp(w.now), 0.001)
	w.wait(5 * time.Second)
	assert.InDelta(t, 0.5, w.pair.Ramp(w.now), 0.001)
	w.calls(9, Success)
	w.wait(time.Minute)
	w.pair.Tick(w.now)
	assert.InDelta(t, 1, w.pair.Ramp(w.now), 0)
	assert.False(t, w.pair.Idle(w.now), "nine successes prove nothing yet")
	w.call(Success)
	w.pair.Tick(w.now)
	assert.True(t, w.pair.Idle(w.now))
	assert.Zero(t, w.pair.tally.Load()&(tallyHasFails|tallyProving))
	w.calls(5, Failure)
	assert.InDelta(t, time.Second, w.pair.OpenLeft(w.now), unit)
}

func TestPairOutsideAGroup(t *testing.T) {
	w := newPairWorld(t, nil)
	probe := w.halfOpen()
	w.group.Set(w.now, nil)
	w.refused()
	assert.Equal(t, Refusing, w.pair.Status(w.now))
	w.pair.Tick(w.now)
	w.pair.Done(probe, w.now, Success)
	assert.Equal(t, HalfOpen, w.pair.State())
	w.group.Set(w.now, w.members)
	w.calls(2, Success)
	w.wait(time.Second)
	w.call(Success)
	assert.Equal(t, Closed, w.pair.State())

	alone := NewPair(New("e"), "m")
	for range 100 {
		p, ok := alone.Allow(0, 0)
		require.True(t, ok)
		alone.Done(p, 0, Failure)
	}
	assert.Equal(t, Closed, alone.State())
}

func TestPairCleanSuccessWritesNothing(t *testing.T) {
	w := newPairWorld(t, nil)
	w.calls(100, Success)
	assert.Zero(t, w.pair.tally.Load())
	assert.Zero(t, w.pair.word.Load())
}

func TestPairConcurrent(t *testing.T) {
	c := DefaultConfig()
	c.OpenFor, c.MaxOpenFor = Duration(time.Millisecond), Duration(4*time.Millisecond)
	g := NewGroup(c, rand.Uint64)
	b := New("e")
	g.Set(0, []*Breaker{b})
	pair := NewPair(b, "m")
	var clock, probes atomic.Int64
	var calling sync.WaitGroup
	for id := range 4 {
		calling.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(id), 4))
			for range 20_000 {
				now := clock.Add(int64(20 * time.Microsecond))
				p, ok := pair.Allow(now, time.Hour)
				if !ok {
					continue
				}
				if p.Probe() {
					assert.LessOrEqual(t, probes.Add(1), int64(3))
					probes.Add(-1)
				}
				pair.Done(p, now, []Outcome{Failure, Failure, Success, Unsent, Neutral}[rng.IntN(5)])
			}
		})
	}
	calling.Wait()
	state := Closed
	g.Drain(func(e Event) {
		if g.Lost() == 0 {
			assert.Equal(t, state, e.From)
		}
		state = e.To
	})
	assert.Equal(t, pair.State(), state)
	for i := range pair.probes {
		assert.False(t, leaseIsOf(pair.probes[i].Load(), word(pair.word.Load()).epoch()), "all leases were returned")
	}
}

package breaker

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// world is a group under test and its clock.
type world struct {
	t       *testing.T
	group   *Group
	members []*Breaker
	now     int64
	events  []Event
}

// newWorld returns a group of n breakers whose open times are not random: exactly OpenFor x 2^k. All of them may be open unless
// edit says otherwise. The sequential test is off, as it would be the first to open in most tests of other rules.
func newWorld(t *testing.T, n int, edit func(*Config)) *world {
	c := DefaultConfig()
	c.MaxEjectionPercent = 100
	c.Sequential = false
	if edit != nil {
		edit(&c)
	}
	require.NoError(t, c.Validate())
	w := &world{t: t, group: NewGroup(c, func() uint64 { return 0 }), now: int64(time.Hour)}
	for i := range n {
		w.members = append(w.members, New(fmt.Sprint("e", i)))
	}
	w.group.Set(w.now, w.members)
	w.tick()
	return w
}

func (w *world) wait(d time.Duration) { w.now += int64(d) }

// tick makes the group tick, collects its events, and returns what the tick did.
func (w *world) tick() bool {
	freed := w.group.Tick(w.now)
	w.drain()
	return freed
}

// pass lets time pass with a tick every 50 ms.
func (w *world) pass(d time.Duration) (freed bool) {
	const step = 50 * time.Millisecond
	for ; d > 0; d -= step {
		w.wait(min(step, d))
		freed = w.tick() || freed
	}
	return freed
}

func (w *world) drain() {
	w.group.Drain(func(e Event) { w.events = append(w.events, e) })
}

// begin starts a call that must be allowed.
func (w *world) begin(b *Breaker, slow time.Duration) Permit {
	p, ok := b.Allow(w.now, slow)
	if !ok {
		require.FailNow(w.t, "refused", "in state %v", b.State())
	}
	return p
}

// call makes a call that must be allowed and ends at once.
func (w *world) call(b *Breaker, outcomes ...Outcome) {
	for _, o := range outcomes {
		b.Done(w.begin(b, time.Second), w.now, o)
	}
}

func (w *world) calls(b *Breaker, n int, o Outcome) {
	for range n {
		w.call(b, o)
	}
}

// refused requires that a call is refused.
func (w *world) refused(b *Breaker) {
	_, ok := b.Allow(w.now, time.Second)
	require.False(w.t, ok, "allowed in state %v", b.State())
}

// open opens a breaker by failures.
func (w *world) open(b *Breaker) {
	w.calls(b, w.group.Config().ConsecutiveFailures, Failure)
	require.Equal(w.t, Open, b.State())
}

// halfOpen opens a breaker, lets its open time pass and takes the first probe.
func (w *world) halfOpen(b *Breaker) Permit {
	w.open(b)
	w.wait(b.OpenLeft(w.now))
	p := w.begin(b, time.Second)
	require.Equal(w.t, HalfOpen, b.State())
	require.True(w.t, p.Probe())
	return p
}

// closeAgain makes probes succeed until a due breaker is closed.
func (w *world) closeAgain(b *Breaker) {
	w.calls(b, w.group.Config().HalfOpenProbes, Success)
	require.Equal(w.t, Closed, b.State())
}

// rules returns the rules of the events so far.
func (w *world) rules() (rules []Rule) {
	w.drain()
	for _, e := range w.events {
		rules = append(rules, e.Reason.Rule)
	}
	return rules
}

func (w *world) lastReason() Reason {
	w.drain()
	require.NotEmpty(w.t, w.events)
	return w.events[len(w.events)-1].Reason
}

const unit = 1 << stampUnit // the resolution of open times and slow times

package breaker

import (
	"math"
	"sync/atomic"
	"time"
)

// circuit is what breakers of endpoints and of pairs have in common: the state, its changes, and the probes while it is
// half-open.
type circuit struct {
	word atomic.Uint64
	last atomic.Pointer[entry] // the last change
}

// host is the breaker around a circuit.
type host interface {
	// leases are the slots of probes in flight.
	leases() []atomic.Uint64
	// names returns the names that events carry.
	names() (endpoint, model string)
	// beforeClosing and afterClosing surround the change to Closed, which other goroutines may see from then on.
	beforeClosing(g *Group, epoch uint16, now int64)
	afterClosing()
}

// State returns the state. An open breaker whose time is over stays so until a call asks.
func (c *circuit) State() State { return word(c.word.Load()).state() }

// Last returns the last change of state, and false if there was none yet.
func (c *circuit) Last() (Event, bool) {
	if e := c.last.Load(); e != nil {
		return e.Event, true
	}
	return Event{}, false
}

// OpenLeft returns how much of the open time is left, and 0 if the breaker is not open or due for a probe.
func (c *circuit) OpenLeft(now int64) time.Duration {
	if w := word(c.word.Load()); w.state() == Open {
		return max(0, until(w.stamp(), now))
	}
	return 0
}

// change makes one transition, if the state is still from, and logs it.
func (c *circuit) change(h host, g *Group, from, to word, now int64, openFor time.Duration, r Reason) bool {
	if word(c.word.Load()) != from {
		return false
	}
	endpoint, model := h.names()
	e := g.events.begin(Event{
		Endpoint: endpoint, Model: model, From: from.state(), To: to.state(), At: now, OpenFor: openFor, Reason: r,
	}, to.epoch())
	if !c.word.CompareAndSwap(uint64(from), uint64(to)) {
		e.settle(void)
		return false
	}
	for old := c.last.Load(); old == nil || int16(e.epoch-old.epoch) > 0; old = c.last.Load() {
		if c.last.CompareAndSwap(old, e) {
			break
		}
	}
	e.settle(happened)
	return true
}

// open opens a circuit. Its open time is twice as long for each time that it has opened again without having been steady.
func (c *circuit) open(h host, g *Group, from word, now int64, r Reason) bool {
	exp := from.exp()
	if from.state() == HalfOpen || from&opened != 0 {
		exp++
	}
	s := g.settings.Load()
	exp = min(exp, s.maxExp)
	d := s.openTime(exp, g.rand())
	return c.change(h, g, from, makeWord(Open, from.epoch()+1, exp, stampAfter(now, d)), now, d, r)
}

// close closes a circuit that is not.
func (c *circuit) close(h host, g *Group, from word, now int64, r Reason) bool {
	to := makeWord(Closed, from.epoch()+1, from.exp(), stampOf(now)) | opened
	if g.settings.Load().RampFor > 0 {
		to |= ramping
	}
	h.beforeClosing(g, to.epoch(), now)
	if !c.change(h, g, from, to, now, 0, r) {
		return false
	}
	h.afterClosing()
	g.freed.Store(true)
	return true
}

// status is Status of a circuit that is not closed.
func (c *circuit) status(h host, g *Group, w word, now int64) Status {
	switch {
	case g == nil:
		return Refusing
	case w.state() == Open:
		if until(w.stamp(), now) > 0 {
			return Refusing
		}
		return Probing
	}
	s := g.settings.Load()
	leases := h.leases()
	if _, ok := s.grant(w, now); !ok || anyExpired(leases, w.epoch(), now) {
		return Refusing
	}
	for i := range leases[:min(s.HalfOpenProbes, len(leases))] {
		if leaseOver(leases[i].Load(), now) {
			return Probing
		}
	}
	return Refusing
}

// next returns when time alone changes what a circuit does, or math.MaxInt64.
func (c *circuit) next(h host, g *Group, now int64) int64 {
	w := word(c.word.Load())
	next := int64(math.MaxInt64)
	sooner := func(d time.Duration) {
		if d > 0 {
			next = min(next, now+int64(d))
		}
	}
	switch {
	case g == nil:
	case w.state() == Open:
		sooner(until(w.stamp(), now))
	case w.state() == HalfOpen:
		if s := g.settings.Load(); w.grants() >= s.HalfOpenProbes {
			sooner(until(w.stamp(), now) + time.Duration(s.OpenFor))
		}
		for i := range h.leases() {
			if l := h.leases()[i].Load(); leaseIsOf(l, w.epoch()) {
				sooner(max(1, leaseLeft(l, now)))
			} else if l != 0 {
				sooner(leaseLeft(l, now))
			}
		}
	}
	return next
}

// minRamp is the share of its traffic that a breaker starts with when it closes.
const minRamp = 0.1

// ramp returns the share of its traffic that the host of a closed circuit can take.
func (c *circuit) ramp(g *Group, now int64) float64 {
	w := word(c.word.Load())
	if w.state() != Closed {
		return minRamp
	}
	if w&ramping == 0 || g == nil {
		return 1
	}
	window := g.settings.Load().RampFor
	done := -until(w.stamp(), now)
	if done >= window {
		return 1
	}
	return max(minRamp, float64(done)/float64(window))
}

// settle ends the ramp of a closed circuit, and forgets how often it opened once it has been steady: for as long as the window
// and its last open time, and proven by calls that succeeded.
func (c *circuit) settle(s *settings, now int64, proven bool) {
	w := word(c.word.Load())
	if w.state() != Closed || w&(opened|ramping) == 0 {
		return
	}
	to, closedFor := w, -until(w.stamp(), now)
	if closedFor >= s.RampFor {
		to &^= ramping
	}
	if proven && closedFor >= max(time.Duration(s.Window), s.baseOpenTime(w.exp())) {
		to = makeWord(Closed, w.epoch(), 0, w.stamp()) | to&ramping
	}
	if to != w {
		c.word.CompareAndSwap(uint64(w), uint64(to))
	}
}

// longAgo is far less than the 26 days after which a stamp that has passed looks as if it were still to come.
const longAgo = 24 * time.Hour

// refresh keeps the stamp of a circuit that nobody has asked for long from going round: an open one stays due, and a half-open
// one begins another period.
func (c *circuit) refresh(now int64) {
	w := word(c.word.Load())
	if w.state() == Closed || until(w.stamp(), now) > -longAgo {
		return
	}
	to := makeWord(w.state(), w.epoch(), w.exp(), stampOf(now)) | w&(winMask<<winShift)
	c.word.CompareAndSwap(uint64(w), uint64(to))
}

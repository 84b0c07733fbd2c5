package breaker

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// Outcome is what the end of a call says about the endpoint.
type Outcome uint8

const (
	// Unsent: the call never reached the endpoint. It judges nobody and gives back all that it took. It is the zero value.
	Unsent Outcome = iota
	// Success: the endpoint did what it was asked. It counts as Slow if the call took longer than its slow time.
	Success
	// Slow: a success that took too long.
	Slow
	// Failure: the endpoint failed.
	Failure
	// Neutral: the endpoint answered, or was not let answer, in a way that says nothing about it.
	Neutral
)

var outcomeNames = [...]string{Unsent: "unsent", Success: "success", Slow: "slow", Failure: "failure", Neutral: "neutral"}

// String returns the outcome in lower case.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return fmt.Sprintf("outcome(%d)", uint8(o))
}

// Permit is a call that was allowed, to be passed to Done of the same breaker exactly once. The zero Permit is that of a call which was
// refused; Done ignores it.
//
// It has no more than four fields because the compiler keeps such structs in registers.
type Permit struct {
	ticket uint64 // what stands in the slot
	epoch  uint16
	kind   permitKind
	at     uint8 // a call: stripe (5 bits) and slot (3 bits); a probe: slot
}

type permitKind uint8

const (
	noPermit permitKind = iota
	callPermit
	probePermit
)

// Probe reports whether the call is a probe of a half-open breaker.
func (p Permit) Probe() bool { return p.kind == probePermit }

// circuit is what breakers of endpoints and of pairs have in common: the state, its changes, and the probes while it is half-open.
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

// maxProbes is the most probes that may be in flight.
const maxProbes = 16

// minLease is the least time that a probe has before it counts as failed.
const minLease = time.Second

// A lease is a probe in flight: its epoch (16 bits), and when it runs out, in units of 2^10 ns (48 bits of them). It is never 0.
const (
	leaseUnit       = 10
	leaseEpochShift = 48
)

func newLease(now int64, slow time.Duration, epoch uint16) uint64 {
	end := uint64(now+int64(max(slow, minLease))) >> leaseUnit
	return uint64(epoch)<<leaseEpochShift | (end|1)&(1<<leaseEpochShift-1)
}

func leaseIsOf(lease uint64, epoch uint16) bool {
	return lease != 0 && uint16(lease>>leaseEpochShift) == epoch
}

// leaseLeft returns how long it is until a lease runs out: 0 or less once it has.
func leaseLeft(lease uint64, now int64) time.Duration {
	const sign = 64 - leaseEpochShift
	return time.Duration(int64(lease<<sign-uint64(now)>>leaseUnit<<sign)>>sign) << leaseUnit
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
	e := g.events.begin(Event{Endpoint: endpoint, Model: model, From: from.state(), To: to.state(), At: now, OpenFor: openFor, Reason: r})
	e.epoch = to.epoch()
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

// close closes a half-open circuit.
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

// expire opens a half-open circuit again if the lease of a probe has run out, and returns the state.
func (c *circuit) expire(h host, g *Group, now int64) word {
	for {
		w := word(c.word.Load())
		if w.state() != HalfOpen || !anyExpired(h.leases(), w.epoch(), now) {
			return w
		}
		c.open(h, g, w, now, Reason{Rule: ProbeExpired, Within: minLease})
	}
}

func anyExpired(leases []atomic.Uint64, epoch uint16, now int64) bool {
	for i := range leases {
		if l := leases[i].Load(); leaseIsOf(l, epoch) && leaseLeft(l, now) <= 0 {
			return true
		}
	}
	return false
}

// probe asks for a probe. again says that the circuit has closed meanwhile.
func (c *circuit) probe(h host, g *Group, now int64, slow time.Duration) (p Permit, ok, again bool) {
	if g == nil {
		return Permit{}, false, c.State() == Closed
	}
	s := g.settings.Load()
	for {
		w := c.expire(h, g, now)
		switch w.state() {
		case Closed:
			return Permit{}, false, true
		case Open:
			if until(w.stamp(), now) > 0 {
				return Permit{}, false, false
			}
			c.change(h, g, w, makeWord(HalfOpen, w.epoch()+1, w.exp(), stampOf(now)), now, 0, Reason{Rule: Due})
		case HalfOpen:
			granted, ok := s.grant(w, now)
			if !ok {
				return Permit{}, false, false
			}
			p := Permit{ticket: newLease(now, slow, w.epoch()), epoch: w.epoch(), kind: probePermit}
			leases := h.leases()[:min(s.HalfOpenProbes, len(h.leases()))]
			p.at, ok = lease(leases, p.ticket, now)
			if !ok {
				return Permit{}, false, false
			}
			if c.word.CompareAndSwap(uint64(w), uint64(granted)) {
				return p, true, false
			}
			leases[p.at].CompareAndSwap(p.ticket, 0)
		}
	}
}

// grant returns the word of a half-open circuit after one more probe was granted, and false if this period's are used up.
func (s *settings) grant(w word, now int64) (word, bool) {
	if w.grants() == 0 || until(w.stamp(), now)+time.Duration(s.OpenFor) <= 0 { // a new period begins
		w = makeWord(HalfOpen, w.epoch(), w.exp(), stampOf(now)) | w&(winMask<<winShift)
	}
	return w + oneGrant, w.grants() < s.HalfOpenProbes
}

// lease puts a probe into a free slot.
func lease(leases []atomic.Uint64, ticket uint64, now int64) (slot uint8, ok bool) {
	for i := range leases {
		if old := leases[i].Load(); leaseOver(old, now) && leases[i].CompareAndSwap(old, ticket) {
			return uint8(i), true
		}
	}
	return 0, false
}

// leaseOver reports whether a slot is free. A probe of an earlier epoch keeps its slot until it ends or its lease runs out, so that
// no more probes are in flight than there may be, whenever they began.
func leaseOver(lease uint64, now int64) bool { return lease == 0 || leaseLeft(lease, now) <= 0 }

// judge takes a probe's result. The verdict comes before the slot is free for another probe.
func (c *circuit) judge(h host, g *Group, p Permit, now int64, o Outcome) {
	slot := &h.leases()[p.at]
	if g != nil && slot.Load() == p.ticket {
		s := g.settings.Load()
		for !c.verdict(h, g, s, p, now, o) {
		}
	}
	slot.CompareAndSwap(p.ticket, 0)
	if g != nil {
		g.freed.Store(true)
	}
}

// verdict makes a probe's result count, and returns false if something else changed the state first.
func (c *circuit) verdict(h host, g *Group, s *settings, p Permit, now int64, o Outcome) bool {
	w := c.expire(h, g, now)
	switch {
	case w.state() != HalfOpen || w.epoch() != p.epoch:
		return true
	case o == Failure || o == Slow && s.SlowCall.Ratio > 0:
		return c.open(h, g, w, now, Reason{Rule: ProbeFailed})
	case o == Neutral || o == Unsent && w.grants() == 0:
		return true
	case o == Unsent:
		return c.word.CompareAndSwap(uint64(w), uint64(w-oneGrant))
	case w.wins()+1 >= s.HalfOpenProbes:
		return c.close(h, g, w, now, Reason{Rule: Probed, Count: w.wins() + 1})
	}
	return c.word.CompareAndSwap(uint64(w), uint64(w+oneWin))
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

// settle ends the ramp of a closed circuit, and forgets how often it opened once it has been steady: for as long as the window and its
// last open time, and proven by calls that succeeded.
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

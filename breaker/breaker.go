package breaker

import (
	"math"
	"sync/atomic"
	"time"
)

// Breaker guards one endpoint. It belongs to at most one Group at a time, which says by what rules it opens; without one it is
// always closed. All methods are safe for concurrent use and none locks; Allow and Done do not allocate unless the state changes.
//
// Results are votes: each call has one, in the state that it began in. A result that comes after the state has changed is
// dropped, since it tells of the endpoint as it was.
type Breaker struct {
	circuit                // its word is read by each call and written when the state changes
	stuck      atomic.Bool // the calls that are late are a model's matter
	stripes    []stripe
	origins    []origins
	group      atomic.Pointer[Group]
	place      atomic.Pointer[Group] // the group of whose places for open breakers this one holds one
	onHang     func(Hang) bool
	name       string
	repeatable bool // see Repeatable

	_         [64]byte      // what follows is written by calls that fail or are slow
	streak    atomic.Uint64 // epoch (16 bits), failures in a row (16), the successes seen at the last of them (32)
	late      atomic.Uint64 // epoch (16 bits), calls of it that are late and still in flight (48, signed)
	suspicion suspicion
	rest      atomic.Uint64 // float64: failure rate of the rest of the group; 0 where that is no measure
	opening   atomic.Bool   // a goroutine is about to open it
	waiting   atomic.Bool   // it ought to be open, but too many others are
	window    window
	okBefore  atomic.Uint64 // the calls that had succeeded in time when it closed last
	faults    faults
	probes    [maxProbes]atomic.Uint64
}

// New returns a closed Breaker for an endpoint of that name, which only events carry.
func New(endpoint string) *Breaker {
	stripes := newStripes()
	return &Breaker{name: endpoint, stripes: stripes, origins: make([]origins, len(stripes))}
}

// Repeatable makes what the breaker does depend on its calls and their times alone, and not on what goroutine they come from: a simulation gives the same
// figures each time. It is to be called before the first call.
func (b *Breaker) Repeatable() { b.repeatable = true }

// Allow asks for a call. slow is the call's slow time (see Config.SlowTime): when it has passed and the call is still in flight,
// that counts as slow at once. 0 or less means that it is not known:
// the call is never slow unless Done says so. A call that is allowed must be ended by Done.
//
// A half-open breaker allows probes only, and each has a lease of its slow time or a second, whichever is longer: when that has
// run out the probe counts as failed, whatever becomes of it.
func (b *Breaker) Allow(now int64, slow time.Duration) (Permit, bool) {
	return b.AllowModel(now, slow, 0)
}

// AllowModel is Allow for a call of a model, which may be that model's matter if it hangs (see OnHang). model is any number that
// tells models apart, as for ModelFault; 0 if the call has none.
func (b *Breaker) AllowModel(now int64, slow time.Duration, model uint64) (Permit, bool) {
	for {
		w := word(b.word.Load())
		if w.state() == Closed {
			return b.allow(w.epoch(), now, slow, model), true
		}
		if p, ok, again := b.probe(b, b.group.Load(), now, slow); !again {
			return p, ok
		}
	}
}

func (b *Breaker) allow(epoch uint16, now int64, slow time.Duration, model uint64) Permit {
	mask := uint64(len(b.stripes)) - 1
	stripe := stripeHint() & mask
	if b.repeatable {
		stripe = uint64(now) * 0x9e3779b97f4a7c15 >> 56 & mask
	}
	if slow <= 0 {
		return Permit{epoch: epoch, kind: callPermit, at: uint8(stripe<<stripeShift | noSlot)}
	}
	ticket := newTicket(now, slow, epoch)
	slot := b.stripes[stripe].enter(ticket)
	for i := uint64(1); slot == noSlot && i < maxFull; i++ {
		stripe = (stripe + 1) & mask
		slot = b.stripes[stripe].enter(ticket)
	}
	if slot != noSlot {
		if origin, o := originOf(model, now), &b.origins[stripe].of[slot]; o.Load() != origin {
			o.Store(origin)
		}
	}
	return Permit{ticket, epoch, callPermit, uint8(stripe<<stripeShift | slot)}
}

// Done ends a call that Allow allowed.
func (b *Breaker) Done(p Permit, now int64, o Outcome) {
	if p.kind != callPermit {
		if p.kind == probePermit {
			if o == Success && slowProbe(p.ticket, now) {
				o = Slow
			}
			b.judge(b, b.group.Load(), p, now, o)
		}
		return
	}
	s := &b.stripes[p.at>>stripeShift]
	late := false // whether the call was counted as slow while it was in flight
	if slot := p.at & noSlot; slot != noSlot {
		late = !s.calls[slot].CompareAndSwap(p.ticket, 0)
	}
	if word(b.word.Load()).epoch() != p.epoch {
		return
	}
	if o == Success && !late && (p.ticket == 0 || !overdue(p.ticket, now)) {
		s.ok.Add(1)
		return
	}
	b.vote(p.epoch, now, o, late)
}

// vote counts a result that is not an ordinary success.
func (b *Breaker) vote(epoch uint16, now int64, o Outcome, late bool) {
	if late {
		addInEpoch(&b.late, epoch, -1)
	}
	switch o {
	case Success, Slow:
		b.window.late.Add(1)
		if !late {
			b.window.slow.Add(1)
		}
	case Failure:
		b.fail(epoch, now, late)
	case Unsent:
		if late {
			b.window.slow.Add(^uint64(0))
		}
	}
}

const (
	epochTag  = 48
	countMask = 1<<epochTag - 1
)

// addInEpoch adds to a count that starts at 0 in each epoch.
func addInEpoch(w *atomic.Uint64, epoch uint16, d int64) {
	for {
		old := w.Load()
		count := uint64(d)
		if uint16(old>>epochTag) == epoch {
			count += old
		}
		if w.CompareAndSwap(old, uint64(epoch)<<epochTag|count&countMask) {
			return
		}
	}
}

// inEpoch returns such a count.
func inEpoch(w *atomic.Uint64, epoch uint16) int {
	v := w.Load()
	if uint16(v>>epochTag) != epoch {
		return 0
	}
	return int(int64(v<<(64-epochTag)) >> (64 - epochTag))
}

// inTime returns the calls that ever succeeded in time.
func (b *Breaker) inTime() (n uint64) {
	for i := range b.stripes {
		n += b.stripes[i].ok.Load()
	}
	return n
}

// successes returns the calls that ever succeeded.
func (b *Breaker) successes() uint64 { return b.inTime() + b.window.late.Load() }

// fail counts a failure and applies the rules about them.
func (b *Breaker) fail(epoch uint16, now int64, late bool) {
	ok := b.inTime()
	successes := ok + b.window.late.Load()
	b.countStreak(epoch, successes)
	g := b.group.Load()
	if g == nil {
		return
	}
	s := g.settings.Load()
	b.window.fail(s.steps, now, ok, late)
	if rate := b.restRate(); s.Sequential && rate > 0 {
		b.suspicion.failed(g, weightsAt(rate), epoch, successes, now)
	}
	if r, bad := b.failing(g, s, epoch, ok, now); bad {
		b.trip(g, epoch, now, r)
	}
}

// maxStreak is the longest row of failures that a rule may ask for.
const maxStreak = 255

const streakShift = 32

// countStreak counts one more failure in a row, or the first one if calls succeeded since the last.
func (b *Breaker) countStreak(epoch uint16, successes uint64) {
	for {
		old := b.streak.Load()
		n := uint64(1)
		if uint16(old>>epochTag) == epoch && uint32(old) == uint32(successes) {
			n = min(old>>streakShift&math.MaxUint16+1, math.MaxUint16)
		}
		if b.streak.CompareAndSwap(old, uint64(epoch)<<epochTag|n<<streakShift|successes&math.MaxUint32) {
			return
		}
	}
}

// inARow returns how many calls failed since the last success.
func (b *Breaker) inARow(epoch uint16, successes uint64) int {
	v := b.streak.Load()
	if uint16(v>>epochTag) != epoch || uint32(v) != uint32(successes) {
		return 0
	}
	return int(v >> streakShift & math.MaxUint16)
}

func (b *Breaker) restRate() float64 { return math.Float64frombits(b.rest.Load()) }

// failing reports whether one of the rules about failures is broken now. ok is what inTime returns.
func (b *Breaker) failing(g *Group, s *settings, epoch uint16, ok uint64, now int64) (Reason, bool) {
	successes := ok + b.window.late.Load()
	if s.ConsecutiveFailures > 0 {
		if n := b.inARow(epoch, successes); n >= s.ConsecutiveFailures {
			return Reason{Rule: Consecutive, Count: n}, true
		}
	}
	if s.FailureRatio > 0 {
		c := b.window.counts(s.steps, ok)
		if calls := c.calls(); calls >= s.MinRequests && float64(c.failed) >= s.FailureRatio*float64(calls) {
			return Reason{Rule: FailureRatio, Count: int(c.failed), Calls: calls, Within: time.Duration(s.Window)}, true
		}
	}
	if rate := b.restRate(); s.Sequential && rate > 0 {
		return b.suspicion.verdict(g, rate, epoch, successes, now)
	}
	return Reason{}, false
}

// trip opens the breaker if the group has a place for it, or else, and if others wait for one already, makes it wait.
func (b *Breaker) trip(g *Group, epoch uint16, now int64, r Reason) {
	if g.waiting.Load() || !b.openIn(g, epoch, now, r) {
		b.waiting.Store(true)
		g.waiting.Store(true)
	}
}

// openIn opens the breaker if it is still closed in that epoch. It returns false if there is no place for it. Only one
// goroutine at a time tries, lest one breaker take two places for a moment and keep another one from opening.
func (b *Breaker) openIn(g *Group, epoch uint16, now int64, r Reason) bool {
	if !b.opening.CompareAndSwap(false, true) {
		return true
	}
	defer b.opening.Store(false)
	for {
		w := word(b.word.Load())
		if w.state() != Closed || w.epoch() != epoch {
			return true
		}
		if !g.take() {
			return false
		}
		if !b.place.CompareAndSwap(nil, g) {
			g.give()
			return true // it has closed only now, and still holds the place of before
		}
		open := b.open(b, g, w, now, r)
		if !open || b.group.Load() != g { // or it has left the group, which may have looked for the place too early
			g.takeBack(b)
		}
		if open {
			return true
		}
	}
}

// leases, names, beforeClosing and afterClosing implement host.
func (b *Breaker) leases() []atomic.Uint64         { return b.probes[:] }
func (b *Breaker) names() (endpoint, model string) { return b.name, "" }

func (b *Breaker) beforeClosing(*Group, uint16, int64) {
	ok := b.inTime()
	b.window.forget(ok)
	b.okBefore.Store(ok)
}

func (b *Breaker) afterClosing() {
	if g := b.place.Load(); g != nil {
		g.takeBack(b)
	}
}

// Reset makes the breaker as good as new: closed, with nothing held against the endpoint, and calls in flight have no vote any
// more. It is for an endpoint that is known to be another one now, such as a server that has restarted.
func (b *Breaker) Reset(now int64) {
	g := b.group.Load()
	for {
		w := word(b.word.Load())
		to := makeWord(Closed, w.epoch()+1, 0, stampOf(now))
		b.beforeClosing(g, to.epoch(), now)
		if w.state() == Closed || g == nil {
			if !b.word.CompareAndSwap(uint64(w), uint64(to)) {
				continue
			}
		} else if !b.change(b, g, w, to, now, 0, Reason{Rule: WasReset}) {
			continue
		}
		break
	}
	b.afterClosing()
	b.waiting.Store(false)
	b.faults[0].Store(0)
	b.faults[1].Store(0)
	if g != nil {
		g.freed.Store(true)
	}
}

// Status returns what would become of a call now.
func (b *Breaker) Status(now int64) Status {
	w := word(b.word.Load())
	if w.state() == Closed {
		return Usable
	}
	return b.status(b, b.group.Load(), w, now)
}

// Steady reports whether the breaker is closed and its endpoint gets all of its usual traffic: Status is Usable then, and Ramp
// is 1.
func (b *Breaker) Steady() bool { return word(b.word.Load())&(stateMask|ramping) == word(Closed) }

// Next returns when the status may change though nothing else happens: an open breaker becomes due, a lease runs out, or more
// probes are granted. It is math.MaxInt64 if there is no such time.
func (b *Breaker) Next(now int64) int64 { return b.next(b, b.group.Load(), now) }

// Ramp returns the share of its usual traffic that the endpoint should get: above 0, and 1 except for a while after it closed.
func (b *Breaker) Ramp(now int64) float64 {
	if b.Steady() {
		return 1
	}
	return b.ramp(b.group.Load(), now)
}

// Counts is what a breaker has seen in its window, for display.
type Counts struct {
	// Calls is how many calls had a vote.
	Calls int `json:"calls"`
	// Failures is how many of them failed.
	Failures int `json:"failures"`
	// Slow is how many were slow.
	Slow int `json:"slow"`
	// Late is how many calls are in flight beyond their slow time now.
	Late int `json:"late"`
	// Waiting says that the breaker ought to be open, but that too many others of its group are.
	Waiting bool `json:"waiting,omitempty"`
}

// Counts returns what the breaker has seen since it closed, as far as the window looks back. It is zero while the breaker is
// not closed.
func (b *Breaker) Counts() Counts {
	w, g := word(b.word.Load()), b.group.Load()
	if w.state() != Closed || g == nil {
		return Counts{}
	}
	c := b.window.counts(g.settings.Load().steps, b.inTime())
	return Counts{c.calls(), int(c.failed), int(c.slow), max(0, inEpoch(&b.late, w.epoch())), b.waiting.Load()}
}

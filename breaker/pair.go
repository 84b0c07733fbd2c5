package breaker

import (
	"sync/atomic"
	"time"
)

// Pair guards one model on one endpoint. It is small, as there may be many: it goes by failures in a row and by a count of
// calls that is halved every half window, begun by the first failure; while nothing fails, a call writes nothing. Its rules,
// open times and probes are those of its endpoint's Breaker, except that slow calls open no Pair, and that at most four probes
// are in flight. Pairs are outside the group's limit. All methods are safe for concurrent use and none locks.
type Pair struct {
	circuit
	of     *Breaker
	model  string
	tally  atomic.Uint64
	probes [4]atomic.Uint64
}

// NewPair returns a closed Pair for a model on the endpoint of a breaker, through which it finds its rules. model is the
// model's name, which only events carry.
func NewPair(of *Breaker, model string) *Pair { return &Pair{of: of, model: model} }

// tally is what a Pair counts: the epoch (16 bits), failures in a row (8), failures (12), calls (12), when it was halved last, in
// half windows (15), and whether calls are counted though none fails, since it has to be proven that they succeed (1).
type tally struct {
	epoch         uint16
	streak        uint
	failed, calls uint
	halved        uint
	proving       bool
}

const (
	maxTally      = 1<<12 - 1
	maxHalved     = 1<<15 - 1
	tallyStreak   = 40
	tallyFailed   = 28
	tallyCalls    = 16
	tallyHalved   = 1
	tallyEpoch    = 48
	tallyProving  = 1
	tallyHasFails = maxTally << tallyFailed
)

func unpack(v uint64) tally {
	return tally{
		epoch:   uint16(v >> tallyEpoch),
		streak:  uint(v >> tallyStreak & maxStreak),
		failed:  uint(v >> tallyFailed & maxTally),
		calls:   uint(v >> tallyCalls & maxTally),
		halved:  uint(v >> tallyHalved & maxHalved),
		proving: v&tallyProving != 0,
	}
}

func (t tally) pack() uint64 {
	v := uint64(t.epoch)<<tallyEpoch | uint64(t.streak)<<tallyStreak | uint64(t.failed)<<tallyFailed |
		uint64(t.calls)<<tallyCalls | uint64(t.halved)<<tallyHalved
	if t.proving {
		v |= tallyProving
	}
	return v
}

// add adds a call, after halving what is old.
func (t tally) add(s *settings, epoch uint16, now int64, failed bool) tally {
	half := uint(now/(int64(s.Window)/2)) & maxHalved
	if t.epoch != epoch {
		t = tally{epoch: epoch, halved: half}
	}
	if n := min((half-t.halved)&maxHalved, 12); t.failed > 0 {
		t.failed, t.calls = t.failed>>n, t.calls>>n
	}
	t.halved = half
	if t.calls == maxTally {
		t.failed, t.calls = t.failed/2, t.calls/2
	}
	t.calls++
	if failed {
		t.failed++
		t.streak = min(t.streak+1, maxStreak)
		return t
	}
	t.streak = 0
	if t.proving && t.calls >= uint(s.MinRequests) {
		t.proving = false
	}
	if t.failed == 0 && !t.proving {
		t.calls = 0
	}
	return t
}

// Allow asks for a call, as Breaker.Allow does; slow matters to probes only.
func (p *Pair) Allow(now int64, slow time.Duration) (Permit, bool) {
	for {
		w := word(p.word.Load())
		if w.state() == Closed {
			return Permit{epoch: w.epoch(), kind: callPermit}, true
		}
		if permit, ok, again := p.probe(p, p.group(), now, slow); !again {
			return permit, ok
		}
	}
}

// Done ends a call that Allow allowed.
func (p *Pair) Done(permit Permit, now int64, o Outcome) {
	switch {
	case permit.kind == probePermit:
		if o == Slow {
			o = Success
		}
		p.judge(p, p.group(), permit, now, o)
	case permit.kind == noPermit, o == Unsent, o == Neutral, word(p.word.Load()).epoch() != permit.epoch:
	case o == Failure:
		p.count(permit.epoch, now, true)
	case p.tally.Load()&(tallyHasFails|tallyProving) != 0:
		p.count(permit.epoch, now, false)
	}
}

// count adds a call to the tally and applies the rules.
func (p *Pair) count(epoch uint16, now int64, failed bool) {
	g := p.group()
	if g == nil {
		return
	}
	s := g.settings.Load()
	for {
		old := p.tally.Load()
		t := unpack(old).add(s, epoch, now, failed)
		if !p.tally.CompareAndSwap(old, t.pack()) {
			continue
		}
		if r, bad := t.failing(s); failed && bad {
			p.trip(g, epoch, now, r)
		}
		return
	}
}

// Hang opens the pair, if it is closed: calls of the model hang on the endpoint, and those of others do not.
func (p *Pair) Hang(h Hang) {
	if g := p.group(); g != nil {
		r := Reason{Rule: Hung, Count: h.Calls, Within: time.Duration(h.Now - h.Since)}
		p.trip(g, word(p.word.Load()).epoch(), h.Now, r)
	}
}

func (t tally) failing(s *settings) (Reason, bool) {
	if s.ConsecutiveFailures > 0 && t.streak >= uint(s.ConsecutiveFailures) {
		return Reason{Rule: Consecutive, Count: int(t.streak)}, true
	}
	if s.FailureRatio > 0 && t.calls >= uint(s.MinRequests) && float64(t.failed) >= s.FailureRatio*float64(t.calls) {
		return Reason{Rule: FailureRatio, Count: int(t.failed), Calls: int(t.calls), Within: time.Duration(s.Window)}, true
	}
	return Reason{}, false
}

func (p *Pair) trip(g *Group, epoch uint16, now int64, r Reason) {
	for {
		w := word(p.word.Load())
		if w.state() != Closed || w.epoch() != epoch || p.open(p, g, w, now, r) {
			return
		}
	}
}

func (p *Pair) group() *Group { return p.of.group.Load() }

// leases, names, beforeClosing and afterClosing implement host.
func (p *Pair) leases() []atomic.Uint64         { return p.probes[:] }
func (p *Pair) names() (endpoint, model string) { return p.of.name, p.model }
func (p *Pair) afterClosing()                   {}

func (p *Pair) beforeClosing(g *Group, epoch uint16, now int64) {
	half := uint(now/(int64(g.settings.Load().Window)/2)) & maxHalved
	p.tally.Store(tally{epoch: epoch, halved: half, proving: true}.pack())
}

// Tick does what depends on time: it lets leases run out, ends the ramp, and forgets how often the pair opened once it has been
// steady. It needs to be called, every 50 to 100 ms, only while Idle is false.
func (p *Pair) Tick(now int64) {
	g := p.group()
	if g == nil {
		return
	}
	p.expire(p, g, now)
	p.refresh(now)
	p.settle(g.settings.Load(), now, p.tally.Load()&(tallyHasFails|tallyProving) == 0)
}

// Idle reports whether the pair holds nothing that a new one would not: it is closed, has been steady if it ever was open, and
// remembers no failure as of now. A table may drop it.
func (p *Pair) Idle(now int64) bool {
	w := word(p.word.Load())
	if w.state() != Closed || w&(opened|ramping) != 0 {
		return false
	}
	g, t := p.group(), unpack(p.tally.Load())
	if t.epoch != w.epoch() || t.failed == 0 && !t.proving {
		return true
	}
	return g != nil && t.add(g.settings.Load(), w.epoch(), now, false).failed == 0
}

// Status returns what would become of a call now.
func (p *Pair) Status(now int64) Status {
	w := word(p.word.Load())
	if w.state() == Closed {
		return Usable
	}
	return p.status(p, p.group(), w, now)
}

// Next returns when the status may change by time alone, as Breaker.Next does.
func (p *Pair) Next(now int64) int64 { return p.next(p, p.group(), now) }

// Ramp returns the share of its usual traffic that the pair should get, as Breaker.Ramp does.
func (p *Pair) Ramp(now int64) float64 { return p.ramp(p.group(), now) }

package breaker

import (
	"sync/atomic"
	"time"
)

// maxProbes is the most probes that may be in flight.
const maxProbes = 16

// minLease is the least time that a probe has before it counts as failed.
const minLease = time.Second

// A lease is a probe in flight: its epoch (16 bits), the stamp at which it runs out (40 bits), and how much earlier the call is
// slow, in units of 2^22 ns (8 bits of them). It is never 0.
const (
	leaseEpochShift = 48
	leaseEndShift   = 8
	leaseEndBits    = leaseEpochShift - leaseEndShift
	earlyUnit       = 22
	earlyMask       = 1<<leaseEndShift - 1
)

func newLease(now int64, slow time.Duration, epoch uint16) uint64 {
	slow = min(slow, maxSlow)
	length, early := max(slow, minLease), time.Duration(0)
	if slow > 0 {
		early = length - slow
	}
	end := uint64(now+int64(length)+1<<stampUnit-1) >> stampUnit & (1<<leaseEndBits - 1)
	return max(1, uint64(epoch)<<leaseEpochShift|end<<leaseEndShift|uint64(early)>>earlyUnit)
}

func leaseIsOf(lease uint64, epoch uint16) bool {
	return lease != 0 && uint16(lease>>leaseEpochShift) == epoch
}

// leaseLeft returns how long it is until a lease runs out: 0 or less once it has.
func leaseLeft(lease uint64, now int64) time.Duration {
	const sign = 64 - leaseEndBits - stampUnit
	end := lease >> leaseEndShift & (1<<leaseEndBits - 1)
	return time.Duration(int64((end<<stampUnit-uint64(now))<<sign) >> sign)
}

// slowProbe reports whether a probe that ends now was slow.
func slowProbe(lease uint64, now int64) bool {
	return leaseLeft(lease, now) < time.Duration(lease&earlyMask<<earlyUnit)
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

// leaseOver reports whether a slot is free. A probe of an earlier epoch keeps its slot until it ends or its lease runs out, so
// that no more probes are in flight than there may be, whenever they began.
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
	if g != nil && c.State() == HalfOpen {
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

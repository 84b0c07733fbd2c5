package breaker

import (
	"cmp"
	"slices"
	"time"
)

// watch is what the group's tick remembers of a member.
type watch struct {
	breaker    *Breaker
	status     Status // at the last tick
	epoch      uint16
	quietSince int64 // the last tick that found a success
	late       late

	successes, failed     uint64  // totals at the last tick
	recent, recentFailing float64 // calls and failures of late, for the group's failure rate
}

// look looks after one member.
func (w *watch) look(g *Group, s *settings, now int64, stalled bool) {
	b := w.breaker
	word := b.expire(b, g, now)
	b.refresh(now)
	ok := b.inTime()
	b.window.check(s.steps, now, ok)
	b.window.roll(s.steps, now, ok)
	if word.state() != Closed {
		return
	}
	if stalled || w.epoch != word.epoch() || w.successes != ok+b.window.late.Load() {
		w.epoch, w.quietSince = word.epoch(), now
	}
	if !stalled {
		w.sweep(s, now)
	}
	b.settle(s, now, ok-b.okBefore.Load() >= uint64(s.MinRequests))
}

// candidate is a breaker that ought to be open.
type candidate struct {
	watch  *watch
	reason Reason
	bad    float64
}

// eject opens what ought to be open, the worst first, as far as there are places for them.
func (g *Group) eject(s *settings, now int64) {
	waiting := g.waiting.Swap(false)
	var slow restSlow
	var candidates []candidate
	for i := range g.watches {
		w := &g.watches[i]
		b := w.breaker
		wanted := waiting && b.waiting.Swap(false)
		if b.State() != Closed {
			continue
		}
		ok := b.inTime()
		successes := ok + b.window.late.Load()
		r, bad := w.hanging(s, successes, now)
		if !bad {
			r, bad = g.slow(w, s, ok, &slow)
		}
		if !bad && wanted {
			r, bad = b.failing(g, s, w.epoch, ok, now)
		}
		if bad {
			candidates = append(candidates, candidate{w, r, b.window.counts(s.steps, ok).bad()})
		}
	}
	slices.SortStableFunc(candidates, func(a, b candidate) int { return cmp.Compare(b.bad, a.bad) })
	for _, c := range candidates {
		if !c.watch.breaker.openIn(g, c.watch.epoch, now, c.reason) {
			c.watch.breaker.waiting.Store(true)
			g.waiting.Store(true)
		}
	}
}

// restSlow is how many calls of the closed breakers were slow, worked out once for all of a tick that want to know.
type restSlow struct {
	known       bool
	slow, calls int
}

// slow reports whether too many of a member's calls were slow, and fewer of the rest's. Where all are slow the cause is load, and
// to take an endpoint out makes it worse.
func (g *Group) slow(w *watch, s *settings, ok uint64, all *restSlow) (Reason, bool) {
	b := w.breaker
	c := b.window.counts(s.steps, ok)
	slow, calls := int(c.slow), c.calls()
	if s.SlowCall.Ratio == 0 || slow == 0 || calls < s.MinRequests || float64(slow) < s.SlowCall.Ratio*float64(calls) {
		return Reason{}, false
	}
	if !all.known {
		all.known = true
		for i := range g.watches {
			if b := g.watches[i].breaker; b.State() == Closed {
				c := b.window.counts(s.steps, b.inTime())
				all.slow, all.calls = all.slow+int(c.slow), all.calls+c.calls()
			}
		}
	}
	rest := ratio(max(0, all.slow-slow), max(0, all.calls-calls))
	if all.calls-calls >= s.MinRequests && rest >= s.SlowCall.Ratio/2 {
		return Reason{}, false
	}
	return Reason{Rule: SlowRatio, Count: slow, Calls: calls, Within: time.Duration(s.Window), Rate: rest}, true
}

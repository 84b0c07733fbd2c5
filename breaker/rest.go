package breaker

import (
	"math"
	"slices"
	"sync/atomic"
	"time"
)

// The failure rate that the sequential test holds an endpoint against is that of the rest of its group of late: older calls
// count less, by a factor of e for each restMemory and for each restCalls calls since. Before much is known, the rest is
// believed to be healthy.
const (
	restMemory = 30 * time.Second
	restCalls  = 10_000
	priorCalls = 500
)

// collect adds what the members have counted since the last tick, and lets what is older count less.
func (g *Group) collect(now int64) {
	calls := 0.0
	for i := range g.watches {
		w := &g.watches[i]
		successes, failed := w.breaker.successes(), w.breaker.window.failed.Load()
		n, failing := float64(successes-w.successes+failed-w.failed), float64(failed-w.failed)
		w.successes, w.failed = successes, failed
		w.recent += n
		w.recentFailing += failing
		calls += n
	}
	keep := math.Exp(-float64(max(0, now-g.ticked))/float64(restMemory) - calls/restCalls)
	for i := range g.watches {
		g.watches[i].recent *= keep
		g.watches[i].recentFailing *= keep
	}
	g.ticked = now
}

// publish tells each member the failure rate of the rest.
func (g *Group) publish() {
	var all, failing float64
	for i := range g.watches {
		all, failing = all+g.watches[i].recent, failing+g.watches[i].recentFailing
	}
	for i := range g.watches {
		w := &g.watches[i]
		rate := (max(0, failing-w.recentFailing) + priorCalls*healthyRate) / (max(0, all-w.recent) + priorCalls)
		rate = max(rate, healthyRate)
		if rate > sickRate || len(g.watches) < 2 {
			rate = 0
		}
		w.breaker.rest.Store(math.Float64bits(rate))
	}
}

// groupSum is the group's totals as they were a moment ago.
type groupSum struct {
	at                  atomic.Int64
	successes, failures atomic.Uint64
}

// sumEach is how long the sum of all members' totals is good for, for each member: adding one costs a microsecond at worst, so
// it takes a twentieth of a processor even while everything fails. Few members are added up anew each time.
const (
	sumEach = 20 * time.Microsecond
	sumFew  = 32
)

// totals returns how many calls of the group ever succeeded and failed, those of former members included.
func (g *Group) totals(now int64) (successes, failures uint64) {
	r := g.roster.Load()
	if len(r.members) <= sumFew {
		return r.totals()
	}
	at := g.sum.at.Load()
	if at != never && now >= at && now-at < int64(len(r.members))*int64(sumEach) {
		return g.sum.successes.Load(), g.sum.failures.Load()
	}
	successes, failures = r.totals()
	g.sum.successes.Store(successes)
	g.sum.failures.Store(failures)
	g.sum.at.Store(now)
	return successes, failures
}

// never is a time at which nothing has happened yet.
const never = math.MinInt64

func (r *roster) totals() (successes, failures uint64) {
	successes, failures = r.successes, r.failures
	for _, b := range r.members {
		successes += b.successes()
		failures += b.window.failed.Load()
	}
	return successes, failures
}

// enroll replaces the roster by one with the same totals.
func (g *Group) enroll(members []*Breaker) {
	if slices.Equal(g.roster.Load().members, members) {
		return
	}
	successes, failures := g.roster.Load().totals()
	next := &roster{members: members}
	s, f := next.totals()
	next.successes, next.failures = successes-s, failures-f
	g.roster.Store(next)
}

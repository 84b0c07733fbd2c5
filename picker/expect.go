package picker

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/mlbalancer/mlbalancer/health"
)

// The affinity strategy compares endpoints by the time, in nanoseconds, in which each is expected to have answered. What follows is how that is
// estimated.

const (
	// defaultWorkers is how many calls a server is taken to work on at a time where nobody says.
	defaultWorkers = 4
	// defaultService is how long a model is taken to work on a call at most, and loadShare that in loads, before anything is known of any.
	defaultService = float64(250 * time.Millisecond)
	loadShare      = 0.05
	// ageOfServices is the age, in service times, in which what is known of others' calls has lost most of its worth: they have ended, and others have
	// come, where nobody knows.
	ageOfServices = 0.6
	// maxFactsAge is how old a server's word about its load may be to be of any use.
	maxFactsAge = int64(10 * time.Second)

	// serviceWeightNet is the weight of a new service time in that of a model, serviceWeightAll in that of all models together.
	serviceWeightNet = 0.1
	serviceWeightAll = 0.02
)

// estimator is what one pick needs to estimate with.
type estimator struct {
	t       *Table
	now     int64
	service float64 // of the call's model
	fading  float64 // in a nanosecond, of what is known of others' calls
	mean    float64 // service time of any call
	others  float64 // that others have in flight on the mean endpoint
	workers float64 // of a server that does not say
	chain   float64 // how many loads one leads to that pushes out the only copy of a model
	load    float64 // time of a load on a server that does not say
	plain   bool    // the call has been nowhere, and no endpoint has lately denied that it holds a model
}

// state is how busy an endpoint is estimated to be.
type state struct {
	calls   float64 // in the run queue or on a worker
	workers float64
	own     float64 // calls of this client
	age     float64 // of what the server said, in nanoseconds
	slow    float64 // how many times as long as expected it takes
}

// of estimates how busy an endpoint is: what its server said last that others have there, the less trusted the older it is, and this client's own
// calls in full. Calls that wait for a load are no load.
func (x *estimator) of(e *Endpoint, s *state) {
	f := &e.facts
	s.own = float64(e.InFlight())
	if e.breaker.Stuck() > 0 {
		own, _ := e.working()
		s.own = float64(own)
	}
	s.calls, s.workers = s.own, x.workers
	s.slow = 1
	if e.slow.shows() {
		s.slow = e.slow.factor(x.now, x.mean)
	}
	at := f.at.Load()
	s.age = max(0, float64(x.now-at)) // a report may be later than the pick began
	has := health.Fields(f.has.Load())
	if at == 0 || x.now-at > maxFactsAge || has&health.HasActive == 0 {
		s.age = float64(maxFactsAge)
		s.calls += x.others
		return
	}
	if w := f.workers.Load(); w > 0 {
		s.workers = float64(w)
	}
	others := float64(f.active.Load() - f.own.Load())
	if others > 0 {
		others = x.others + (others-x.others)*decayed(s.age*x.fading)
	}
	if least := -float64(f.waits.Load()); others < least {
		others = least
	}
	if s.calls = s.own + others; s.calls < 0 {
		s.calls = 0
	}
}

// wait returns how long one more call waits for a worker.
func (x *estimator) wait(s *state) float64 {
	if s.calls+1 <= s.workers { // a branch that is predicted, where max waits
		return 0
	}
	return (s.calls + 1 - s.workers) * (x.mean / s.workers * s.slow)
}

// behind returns how long one more call waits, once the load that it waits for is done, for the others that do.
func (x *estimator) behind(e *Endpoint) float64 {
	f := &e.facts
	waiting := float64(e.InFlight())
	if health.Fields(f.has.Load())&health.HasWaiting != 0 {
		waiting = max(0, waiting+float64(f.waits.Load()-f.own.Load()))
	}
	return max(0, waiting+1-x.workers) / x.workers * x.service
}

// crowding is the part of a service time that a call costs those which share its server.
const crowding = 0.02

// warm returns in how long an endpoint that holds the model, and is as busy as s, has answered. How busy it is comes last, since
// that is known last.
func (x *estimator) warm(s *state) float64 {
	return x.wait(s) + (x.service*s.slow + crowding*x.service/s.workers*s.calls)
}

// laneFree returns how long it takes until an endpoint can begin a load: the loads that it has, and those that this client has just
// caused there.
func (x *estimator) laneFree(e *Endpoint) (free, load float64) {
	f := &e.facts
	has := health.Fields(f.has.Load())
	load = x.load
	if l := f.loadTime.Load(); has&health.HasLoadTime != 0 && l > 0 {
		load = float64(l)
	}
	if has&health.HasLaneFree != 0 {
		free = float64(max(0, f.laneFree.Load()-x.now))
	}
	return free + float64(e.loads.count(e))*load, load
}

// eviction returns what it costs others when a load on the endpoint pushes a model out: nothing if there is room, the less the longer the victim has
// not been used, less if others hold it ready too, and else as many loads as that one leads to. Where other loads come before, in the time that is
// given, one of them takes the victim that the server names, and nothing is known of the next one. chain is what copies are priced by: how many loads
// one leads to.
func (x *estimator) eviction(e *Endpoint, load, before float64) (cost, chain float64) {
	const (
		spared  = 4.0 // how many loads' time a model must have been idle to be worth next to nothing
		copied  = 0.7 // of the cost if another endpoint holds the victim: it had its reasons
		allBusy = 2.0 // loads
	)
	f := &e.facts
	chain = x.chain
	others := f.copied.Load() > 1
	if others {
		chain = 1
	}
	if health.Fields(f.has.Load())&health.HasVictim == 0 {
		return 0, chain
	}
	switch v := f.victim.Load(); health.Victim(v & victimMask) {
	case health.VictimIdle:
		age := max(float64(x.now-f.victimUsed.Load()), 1)
		cost = load * (1 - math.Exp(-spared*load/age))
		if others && before <= 0 {
			return copied * cost, chain
		}
		return cost * x.chain, chain
	case health.VictimBusy:
		return allBusy * load * x.chain, chain
	}
	return 0, chain
}

// drag is how many times as long as was expected an endpoint takes for the calls of models that it holds: a moving average that is forgotten
// when there is no more news, and that follows at once where two calls in a row say the same.
type drag struct {
	bits atomic.Uint64 // float64: what it is above 1; may be negative
	at   atomic.Int64
	last atomic.Uint64 // float64: of the last call
}

const (
	slowWeight = 0.15
	// slowServices is the time, in services, in which it is forgotten how slow an endpoint was that gets no more calls: one call in hundreds finds out
	// whether it still is. minSlowMemory and maxSlowMemory bound it.
	slowServices                 = 60
	minSlowMemory, maxSlowMemory = 0.5 * float64(time.Second), 15 * float64(time.Second)
	// slowBand is how slow an endpoint may look and count as being as fast as expected: service times scatter as much.
	slowBand = 1.6
	// slowTwice is how slow two calls in a row are together by chance less than once in a thousand times, as service times scatter.
	slowTwice = 2.5
	// maxSlowness bounds one call's part, which may have hung.
	maxSlowness = 100
	// slowUnit is the least time, in nanoseconds, that is worth forgetting for: a 500th of minSlowMemory.
	slowUnit = int64(time.Millisecond)
)

// slowMemory returns the time in which it is forgotten how slow an endpoint was, in nanoseconds, where calls take service on average.
func slowMemory(service float64) float64 {
	return min(max(slowServices*service, minSlowMemory), maxSlowMemory)
}

// observe takes in that a call took ratio times as long as was expected. What is older is forgotten in memory nanoseconds.
func (s *drag) observe(now int64, ratio, memory float64) {
	old := s.bits.Load()
	v, since := math.Float64frombits(old), now-s.at.Load()
	if since > slowUnit {
		v *= decayed(float64(since) / memory)
	}
	if ratio > maxSlowness {
		ratio = maxSlowness
	}
	next := v + slowWeight*(ratio-1-v)
	last := math.Float64frombits(s.last.Load())
	if ratio > slowTwice && last > slowTwice {
		next = max(next, min(ratio, last)-1)
	}
	if ratio > slowTwice || last > slowTwice { // else it is the same for all that follows
		s.last.Store(math.Float64bits(ratio))
	}
	if s.bits.CompareAndSwap(old, math.Float64bits(next)) && since > slowUnit {
		s.at.Store(now)
	}
}

// shows reports whether the endpoint was slow when it answered last.
func (s *drag) shows() bool { return math.Float64frombits(s.bits.Load()) >= slowBand-1 }

// factor returns how slow the endpoint is, 1 if it is not, where calls take service on average.
func (s *drag) factor(now int64, service float64) float64 {
	v := math.Float64frombits(s.bits.Load())
	if v < slowBand-1 {
		return 1
	}
	if v = 1 + v*decayed(float64(now-s.at.Load())/slowMemory(service)); v < slowBand {
		return 1
	}
	return v
}

// loads counts the loads that this client has caused on an endpoint since the last word of its server.
type loads struct {
	n  atomic.Int32
	at atomic.Int64 // of the last
}

func (l *loads) add(e *Endpoint, now int64) {
	if l.count(e) == 0 {
		l.n.Store(0)
	}
	l.n.Add(1)
	l.at.Store(now)
}

func (l *loads) count(e *Endpoint) int32 {
	if n := l.n.Load(); n != 0 && e.facts.at.Load() < l.at.Load()+confirmedAfter {
		return n
	}
	return 0
}

// credit is what a model may lose in time before it gets another copy: holding it back costs memory that others could use.
type credit struct {
	bits atomic.Uint64 // float64, nanoseconds
	at   atomic.Int64
}

// pay takes up to x from the credit, which grows with rate nanoseconds per nanosecond up to most, and returns what is left to pay.
func (c *credit) pay(now int64, x, rate, most float64) float64 {
	old, at := c.bits.Load(), c.at.Load()
	have := min(math.Float64frombits(old)+max(0, float64(now-at))*rate, most)
	if at == 0 {
		have = 0
	}
	paid := min(have, x)
	if c.bits.CompareAndSwap(old, math.Float64bits(have-paid)) {
		c.at.Store(now)
	}
	return x - paid
}

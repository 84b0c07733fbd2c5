package picker

import (
	"time"

	"github.com/mlbalancer/mlbalancer/breaker"
)

// visit is where a call went, and what for: what its outcome, or that of one of its messages, counts for.
type visit struct {
	endpoint *Endpoint
	guard    *Guard
	modelID  string // the call's, empty if it names none
	key      uint64
	update   bool       // it is one
	model    *Model     // what is known of the model on the endpoint, if that was looked up; else nil
	placed   *placement // the model's placement, likewise
	cost     uint32
	began    int64
	expect   int64 // how long it was expected to take, and how much of that to wait; 0 if nothing was
	wait     int64
	loads    bool // it waits for a load
}

// count lets an outcome count everywhere but with the breakers, and returns what that of the endpoint and that of the model are to be told.
// pushback is how long the server asked callers to stay away; timed says that took is a measure of the endpoint's latency.
func (v *visit) count(now int64, o Outcome, pushback, took time.Duration, timed bool) (endpoint, model breaker.Outcome) {
	switch o {
	case Success:
		v.succeeded(now, took, timed)
		return breaker.Success, breaker.Success
	case Failure:
		v.failed(now, took, timed)
		return breaker.Failure, breaker.Neutral
	case ModelFault:
		blamed := v.blame(now)
		if blamed == breaker.Failure { // else the endpoint's other models would be sent away from it for this one's sake
			v.failed(now, took, timed)
		}
		return blamed, breaker.Failure
	}
	v.refused(now, o, pushback)
	return breaker.Neutral, breaker.Neutral
}

// tells reports whether the model's faults are kept apart from the endpoint's.
func (v *visit) tells() bool {
	return v.guard != nil && v.modelID != "" && v.guard.perModel.Load()
}

// breakerFor returns the breaker of the model on the endpoint, or nil if there is none. A fault of the model makes one.
func (v *visit) breakerFor(o Outcome) *breaker.Pair {
	switch {
	case o == ModelFault && v.tells():
		return v.endpoint.pairFor(v.key, v.modelID)
	case v.guard == nil || v.modelID == "" || !v.endpoint.faulty.Load():
		return nil
	}
	if m := v.endpoint.models.get(v.key); m != nil {
		return m.pair.Load()
	}
	return nil
}

func (v *visit) succeeded(now int64, took time.Duration, timed bool) {
	switch {
	case timed:
		v.observe(now, took)
	default:
		v.endpoint.vitals.Served()
	}
	switch {
	case timed:
	case v.modelID != "" && !v.update:
		v.endpoint.served(v.key, v.modelID, now)
	}
	if v.guard != nil && v.modelID != "" {
		v.guard.absent.found(v.endpoint, v.key, now)
		if v.endpoint.faulty.Load() { // no fault is remembered for longer than the breaker of its model is kept
			v.endpoint.breaker.ModelOK(v.key)
		}
	}
}

// observe notes how long the endpoint took.
func (v *visit) observe(now int64, took time.Duration) {
	v.endpoint.Observe(now, took)
	if v.modelID == "" {
		v.endpoint.vitals.Served()
		return
	}
	m := v.model
	if m == nil {
		m = v.endpoint.models.add(v.key, v.modelID)
	}
	v.learn(now, took)
	latency := float64(took) / sizeOf(v.cost)
	v.endpoint.vitals.Success(m.baseline.Observe(now, latency))
	v.endpoint.observeModel(m, now, latency, v.cost)
}

// learn compares how long the endpoint took with what was expected of it.
func (v *visit) learn(now int64, took time.Duration) {
	if v.expect <= 0 || v.guard == nil {
		return
	}
	if v.endpoint.facts.tellsCalls() { // else it may be others' calls that it is slow for
		v.endpoint.slow.observe(now, float64(took)/float64(v.expect), slowMemory(v.guard.service.value()))
	}
	net := float64(took) - float64(v.wait)
	if net < minNet*float64(took) {
		net = minNet * float64(took)
	}
	net /= sizeOf(v.cost)
	p := v.placed
	if p == nil {
		p = v.guard.residency.get(v.key)
	}
	if p != nil {
		p.service.add(net, serviceWeightNet)
	}
	if sampled(now) || v.guard.service.value() == 0 {
		v.guard.service.add(net, serviceWeightAll)
	}
}

// minNet is the part of a call's time that is taken for work at least: what it was expected to wait may be wrong.
const minNet = 0.2

// blame says whether a fault of the model is one of the endpoint: it is if another model fails there too, or if models are not told apart.
func (v *visit) blame(now int64) breaker.Outcome {
	if !v.tells() || v.endpoint.breaker.ModelFault(v.key, now) {
		return breaker.Failure
	}
	return breaker.Neutral
}

// A failed call counts with a latency between these, unless it took longer than the latter.
const (
	minFailureLatency = 10 * time.Millisecond
	maxFailureLatency = 30 * time.Second
)

// failed books a penalty into the endpoint's latency, twice what it is known for, so that failing fast never makes it attractive.
func (v *visit) failed(now int64, took time.Duration, timed bool) {
	v.endpoint.vitals.Failure()
	if timed {
		penalty := time.Duration(min(2*v.endpoint.Latency(), float64(maxFailureLatency)))
		v.endpoint.Observe(now, max(took, penalty, minFailureLatency))
	}
}

// refused lets the endpoint alone as far as its refusal says.
func (v *visit) refused(now int64, o Outcome, pushback time.Duration) {
	e := v.endpoint
	switch o {
	case Overload:
		e.press(now, pushback)
	case Draining:
		e.drain(now, drainFor)
	case Misplaced:
		if v.guard != nil && v.modelID != "" {
			v.guard.absent.missed(e, v.key, now)
			e.lost(v.key, now)
		}
	}
}

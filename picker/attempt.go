package picker

import (
	"math"
	"time"

	"github.com/mlbalancer/mlbalancer/breaker"
)

// Attempt is one call on its way: what it holds of an endpoint from the time it was placed until it has ended. The zero value is ready
// for Table.Place; an Attempt may be used again after End. It belongs to one goroutine at a time.
type Attempt struct {
	visit
	reason    Reason
	slow      time.Duration
	patient   bool // it was known to take long when it was placed
	permit    breaker.Permit
	pair      *breaker.Pair // nil if the model's breaker has nothing to say
	pairPass  breaker.Permit
	pin       *Pin       // nil if the call may go anywhere
	responses *Responses // nil if nobody reports the call's responses
}

// maxPlace is how often a place is looked for: a choice may lose the race for the last probe to another call, and the next choice is
// another endpoint.
const maxPlace = 4

// Place chooses an endpoint for a request, gets the breakers' leave and counts the call in. deadline is when the call's time is over, on
// the clock of q.Now, and 0 if it has none. A Choice with Index -1 leaves a as it was. A call with a Pin that is held goes
// to the Pin's endpoint, or nowhere.
func (t *Table) Place(q *Query, deadline int64, a *Attempt) Choice {
	if q.Pin != nil {
		return t.placePinned(q, deadline, a)
	}
	return t.place(q, deadline, a)
}

// place is Place for a call that may go anywhere.
func (t *Table) place(q *Query, deadline int64, a *Attempt) Choice {
	q.nPassed = 0
	for range maxPlace {
		c := t.Pick(q)
		if c.Index < 0 {
			return c
		}
		e := t.members[c.Index].Endpoint
		a.expect, a.wait, a.loads = q.Outlook.Expect, q.Outlook.Wait, q.Outlook.loads(c.Reason)
		a.model, a.placed = q.Outlook.model, q.Outlook.placement
		if a.enter(t.plan.Guard, e, q, deadline) {
			return a.begin(c.Index, e, q, c.Reason)
		}
		q.pass(e)
	}
	return Choice{Index: -1, Reason: Refused}
}

// begin counts the call in at an endpoint that has let it enter.
func (a *Attempt) begin(index int, e *Endpoint, q *Query, r Reason) Choice {
	a.endpoint, a.cost, a.modelID, a.update, a.key, a.began = e, q.Cost(), q.ModelID, q.Type == Update, q.Key, q.Now
	a.reason = a.why(r)
	e.Begin(a.cost, a.reason)
	return Choice{Index: index, Reason: a.reason}
}

// why returns the reason for a choice, once it is known what the breakers say.
func (a *Attempt) why(r Reason) Reason {
	switch {
	case a.guard == nil:
	case a.permit.Probe() || a.pairPass.Probe():
		return Probe
	case a.guard.panic.Load() && !a.endpoint.open(a.began):
		return Panic
	}
	return r
}

// enter gets the breakers' leave.
func (a *Attempt) enter(g *Guard, e *Endpoint, q *Query, deadline int64) (ok bool) {
	a.guard, a.pair, a.permit, a.pairPass = g, nil, breaker.Permit{}, breaker.Permit{}
	if g == nil {
		return true
	}
	a.slow = a.slowTime(e, q, deadline)
	lease, slow := a.slow, a.slow
	if a.patient = a.waits(e, q, deadline); a.patient && e.breaker.State() == breaker.Closed {
		slow = 0
	}
	if q.Stream { // it is not slow while it goes on, but as a probe it has to answer
		slow = 0
		if e.breaker.State() != breaker.Closed || e.faulty.Load() {
			lease = g.slowTime(a.expected(e, q), 0)
		}
		if e.breaker.State() != breaker.Closed {
			slow = lease
		}
	}
	if a.permit, ok = e.breaker.AllowModel(q.Now, slow, g.blamable(q)); !ok && !g.panic.Load() {
		return false
	}
	if !e.faulty.Load() || q.ModelID == "" {
		return true
	}
	m := a.known(e, q)
	if m == nil {
		return true
	}
	if p := m.pair.Load(); p != nil {
		if a.pairPass, ok = p.Allow(q.Now, lease); !ok {
			e.breaker.Done(a.permit, q.Now, breaker.Unsent)
			return false
		}
		a.pair = p
	}
	return true
}

// patientShare is the part of its time that a call is expected to take at least not to be held against a server that is working.
const patientShare = 4

// waits reports whether the call is known to have to wait for much of its time, for a load or in a queue, by the word of a server that speaks. While it
// does, it works, and who has to wait too long has met too much work and not a fault.
func (a *Attempt) waits(e *Endpoint, q *Query, deadline int64) bool {
	if !a.loads && (deadline == 0 || a.expect <= (deadline-q.Now)/patientShare) {
		return false
	}
	at := e.facts.at.Load()
	return at != 0 && q.Now-at < speaksWithin
}

// speaksWithin is how old the last word of a server that speaks may be.
const speaksWithin = int64(3 * time.Second)

// slowTime returns the time after which the call is slow, or a stream that has not answered; 0 if it never is.
func (a *Attempt) slowTime(e *Endpoint, q *Query, deadline int64) time.Duration {
	if q.Type == Update || q.Stream && deadline == 0 { // a stream matters only once its deadline has passed
		return 0
	}
	remaining := time.Duration(0)
	if deadline > 0 {
		remaining = time.Duration(max(deadline-q.Now, 1))
	}
	return a.guard.slowTime(a.expected(e, q), remaining)
}

// busyShare is the part of an endpoint's recent peak latency that is expected of any call there: with the default factor, a call is not slow before
// it has taken three times as long as the slowest lately.
const busyShare = 0.6

// expected is how long the endpoint takes for such a call, or for the first message of such a stream; 0 if it is not known. It is no less
// than a part of what the endpoint has lately taken for any call: one that is busy, as with loading a model, does not hang.
func (a *Attempt) expected(e *Endpoint, q *Query) time.Duration {
	m := a.known(e, q)
	if a.loads || m == nil || m.used.Load() <= e.connectedAt.Load() { // the server may have to load it
		return 0
	}
	return max(time.Duration(float64(m.Service())*q.size()), time.Duration(busyShare*e.Latency()), time.Duration(a.expect))
}

// known looks up what is known of the model on the endpoint, once for the attempt.
func (a *Attempt) known(e *Endpoint, q *Query) *Model {
	if a.model == nil {
		a.model = e.models.get(q.Key)
	}
	return a.model
}

// Clear lets go of all that the attempt refers to, so that it may be kept for another call.
func (a *Attempt) Clear() {
	a.endpoint, a.guard, a.model, a.placed, a.pair, a.responses, a.pin = nil, nil, nil, nil, nil, nil, nil
	a.modelID = ""
}

// Endpoint returns where the attempt went.
func (a *Attempt) Endpoint() *Endpoint { return a.endpoint }

// Reason returns why it went there.
func (a *Attempt) Reason() Reason { return a.reason }

// Took returns how long the attempt has lasted.
func (a *Attempt) Took(now int64) time.Duration { return time.Duration(now - a.began) }

// Slow returns the time after which the attempt is slow, or is that of a stream that should have answered; 0 if it never is. An attempt that was known to
// have to wait is not slow at all if its server has spoken since.
func (a *Attempt) Slow() time.Duration {
	if a.patient && a.endpoint.facts.at.Load() > a.began {
		return math.MaxInt64
	}
	return a.slow
}

// End counts the call out and lets its outcome count. pushback is how long its server asked callers to stay away; 0 or less if it did not
// say. timed says that how long the call took is a measure of the endpoint's latency: it is not for a stream.
func (a *Attempt) End(now int64, o Outcome, pushback time.Duration, timed bool) {
	if o == Unsent {
		a.endpoint.Unpick(a.cost, a.reason)
		if a.pin != nil {
			a.pin.part()
		}
		a.leave(now, breaker.Unsent, breaker.Unsent)
		return
	}
	a.endpoint.End(a.cost)
	if a.responses != nil {
		a.endStream(now, o, pushback)
		return
	}
	own, model := a.count(now, o, pushback, a.Took(now), timed && !a.update)
	a.enroll(now, o)
	a.leave(now, own, model)
}

// enroll gets the breaker of the model that had none when the call was placed, if its outcome is a matter for one.
func (a *Attempt) enroll(now int64, o Outcome) {
	if o == ModelFault && a.pair == nil {
		if a.pair = a.breakerFor(o); a.pair != nil && a.pair.State() == breaker.Closed { // else it is no probe, and no news
			a.pairPass, _ = a.pair.Allow(now, 0)
		}
	}
}

// leave gives the permits back with what they are told.
func (a *Attempt) leave(now int64, o, pair breaker.Outcome) {
	if a.guard == nil {
		return
	}
	a.endpoint.breaker.Done(a.permit, now, o)
	if a.pair != nil {
		a.pair.Done(a.pairPass, now, pair)
	}
}

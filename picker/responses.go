package picker

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/mlbalancer/mlbalancer/breaker"
)

// Responses lets the responses of one stream count while it goes on: the time until the first is the endpoint's latency, for it is what
// the caller waits for. Whoever makes the stream's Call puts one into it, the pick fills it in (Attempt.Report), and Received is told of each
// response. The zero value is ready for use.
type Responses struct {
	// Answers says that each response is the answer to one request, of any model, and so a vote of its own for that model on the endpoint.
	// The end of the stream is none then, except for what it says of the endpoint itself. It must not change.
	Answers bool

	visit
	judge    Judge
	permit   breaker.Permit // of the attempt, like the two below
	pair     *breaker.Pair
	pairPass breaker.Permit
	seen     atomic.Bool
}

// Judge is what Responses need of the policy that placed the call. It is safe for concurrent use.
type Judge interface {
	// Now is the time on the clock of picks, in nanoseconds.
	Now() int64
	// InBand says what an error in a response means.
	InBand(text string) Outcome
}

// Report has the responses to the attempt, which has been placed, reported through r, and its end judged by what came before it.
func (a *Attempt) Report(r *Responses, j Judge) {
	r.visit, r.judge, r.permit, r.pair, r.pairPass = a.visit, j, a.permit, a.pair, a.pairPass
	r.seen.Store(false)
	a.responses = r
}

// Judge returns the policy's, or nil if none has placed the call, and then no response counts. It may be called once a response is there.
func (r *Responses) Judge() Judge { return r.judge }

// Model returns the model that the call was placed for; empty if it named none. It may be called once a response is there.
func (r *Responses) Model() string { return r.modelID }

// Counts reports whether the next response does: the first one always, others if they are answers.
func (r *Responses) Counts() bool { return r.judge != nil && (r.Answers || !r.seen.Load()) }

// Received lets a response count that came at now. waited is how long ago the caller sent its first message, 0 if that is not known: a caller
// may take its time. model is the name of the model that answered, without its version; empty if that is not known, which then is
// the call's. o is what the response means: Success, or the Judge's word. model and o matter to answers only.
//
// It does not allocate, except for what is new of a model. One goroutine at a time may call it, beside the end of the attempt.
func (r *Responses) Received(now int64, waited time.Duration, model string, o Outcome) {
	if !r.Counts() {
		return
	}
	first := !r.seen.Load()
	took := time.Duration(now - r.began)
	if waited > 0 {
		took = min(took, waited)
	}
	timed := first && !r.update
	if first {
		r.seen.Store(true)
	}
	if !r.Answers {
		if timed {
			r.observe(now, took)
		}
		r.vote(&r.visit, now, first, Success, breaker.Success, breaker.Success)
		return
	}
	v := r.visit
	if model != "" && !v.asksFor(model) {
		v.modelID, v.key, v.model = model, Key(model), nil
		v.placed = nil
	}
	own, of := v.count(now, o, 0, took, timed)
	r.vote(&v, now, first, o, own, of)
}

// asksFor reports whether a call is for the model of a name, in whatever version.
func (v *visit) asksFor(model string) bool {
	rest, ok := strings.CutPrefix(v.modelID, model)
	return ok && (rest == "" || rest[0] == ':')
}

// vote tells the breakers of a response. A stream that is a probe has answered the question with its first one: it may go on for longer than a
// probe can. Else a response is no success of the endpoint, of which a stream has but one, at its end.
func (r *Responses) vote(v *visit, now int64, first bool, o Outcome, own, of breaker.Outcome) {
	if v.guard == nil {
		return
	}
	b := v.endpoint.breaker
	switch {
	case first && r.permit.Probe():
		b.Done(r.permit, now, own)
	case own == breaker.Failure:
		p, _ := b.Allow(now, 0)
		b.Done(p, now, own)
	}
	if r.pair != nil && r.pairPass.Probe() && v.key == r.key {
		r.pair.Done(r.pairPass, now, of)
		r.pairPass = breaker.Permit{}
		return
	}
	if !r.Answers {
		return
	}
	if pair := v.breakerFor(o); pair != nil {
		p, _ := pair.Allow(now, 0)
		pair.Done(p, now, of)
	}
}

// endStream is End for a stream whose responses are reported. One that ends well without any says nothing. A permit of a probe that a response
// has ended is worth nothing any more: if the stream fails after all, that is a vote of its own.
func (a *Attempt) endStream(now int64, o Outcome, pushback time.Duration) {
	seen := a.responses.seen.Load()
	own, model := breaker.Neutral, breaker.Neutral
	switch {
	case o == Success && !seen:
	case o == Success && a.responses.Answers:
		own = breaker.Success
	default:
		own, model = a.count(now, o, pushback, 0, !seen && !a.update)
		a.enroll(now, o)
	}
	if seen && own == breaker.Failure && a.permit.Probe() {
		a.permit, _ = a.endpoint.breaker.Allow(now, 0)
	}
	if seen && model == breaker.Failure && a.pair != nil && a.pairPass.Probe() {
		a.pair.Done(a.pairPass, now, breaker.Neutral) // unless a response has
		a.pairPass, _ = a.pair.Allow(now, 0)
	}
	a.leave(now, own, model)
}

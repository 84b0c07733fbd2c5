package picker

import "sync/atomic"

// Pin holds calls on one endpoint: those of a sequence, whose server remembers what came before. The first call that shares it
// is placed like any other; all later ones go where that one went, or nowhere: an endpoint that has left, is not connected or
// whose breaker is open is waited for or reported, never replaced. Neither bad health nor draining keeps them away: what a
// server still does for those that it knows is its to say, and Triton serves sequences to their end while it exits. A first
// call that never reached its endpoint leaves the Pin free.
//
// It is safe for concurrent use and never locks; a call that shares one costs an allocation.
type Pin struct {
	name string
	hold atomic.Pointer[hold]
}

// hold is what a Pin knows of its endpoint.
type hold struct {
	endpoint *Endpoint
	calls    int // that were sent there; with 0 the Pin is free
}

// NewPin returns a Pin that holds nothing yet. name says in errors whose it is, such as "sequence 7".
func NewPin(name string) *Pin { return &Pin{name: name} }

// Name returns the name.
func (p *Pin) Name() string { return p.name }

// Endpoint returns the endpoint that calls are held on, or the last one if the Pin is free again; nil before the first call is
// placed.
func (p *Pin) Endpoint() *Endpoint {
	if h := p.hold.Load(); h != nil {
		return h.endpoint
	}
	return nil
}

// join counts one more call in and returns where it has to go, or nil if the Pin is free.
func (p *Pin) join() *Endpoint {
	for {
		h := p.hold.Load()
		if h == nil || h.calls == 0 {
			return nil
		}
		if p.hold.CompareAndSwap(h, &hold{h.endpoint, h.calls + 1}) {
			return h.endpoint
		}
	}
}

// take makes a call that was placed the first one. It reports false if another one is.
func (p *Pin) take(e *Endpoint) bool {
	h := p.hold.Load()
	return (h == nil || h.calls == 0) && p.hold.CompareAndSwap(h, &hold{e, 1})
}

// part takes back that a call was counted in: it was not sent.
func (p *Pin) part() {
	for {
		h := p.hold.Load()
		if p.hold.CompareAndSwap(h, &hold{h.endpoint, h.calls - 1}) {
			return
		}
	}
}

// placePinned is Place for a call with a Pin.
func (t *Table) placePinned(q *Query, deadline int64, a *Attempt) Choice {
	for {
		if e := q.Pin.join(); e != nil {
			c := t.placeAt(e, q, deadline, a)
			if c.Index < 0 {
				q.Pin.part()
			}
			return c
		}
		c := t.place(q, deadline, a)
		if c.Index < 0 {
			return c
		}
		if q.Pin.take(a.endpoint) {
			a.pin = q.Pin
			return c
		}
		a.End(q.Now, Unsent, 0, false) // another call has become the first meanwhile
	}
}

// placeAt places a call on a given endpoint.
func (t *Table) placeAt(e *Endpoint, q *Query, deadline int64, a *Attempt) Choice {
	i := int(e.slot.Load())
	switch {
	case q.Fresh && q.Avoids(e):
		return Choice{Index: -1, Reason: Tried}
	case t.seats(i, e) && t.status[i] == Pending:
		return Choice{Index: -1, Reason: Wait}
	case !t.Takes(e):
		return Choice{Index: -1, Reason: Pinned}
	}
	a.expect, a.wait, a.loads = 0, 0, false
	if !a.enter(t.plan.Guard, e, q, deadline) {
		return Choice{Index: -1, Reason: Pinned}
	}
	a.pin = q.Pin
	return a.begin(i, e, q, Sequence)
}

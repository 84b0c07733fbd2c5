package picker

import (
	"time"

	"github.com/mlbalancer/mlbalancer/breaker"
)

// blamable returns the key of a query's model if what goes wrong may be a matter of the model on the endpoint, else 0.
func (g *Guard) blamable(q *Query) uint64 {
	if q.ModelID == "" || !g.perModel.Load() {
		return 0
	}
	return q.Key
}

// askedWithin is how long ago an endpoint may have answered a model to be taken to be asked for it still.
const askedWithin = int64(time.Second)

// hangs reports whether calls that hang, all of one model, are a matter of the model. They are if the endpoint has answered
// another one since they began, and not this one: then, if they are many, the model is taken out of the endpoint. That others
// are not answered says nothing, since calls that hang make an endpoint look busy: while they are few they do not count as its
// load, if it has answered others lately, so that these are asked for and it is seen whether they hang too.
func (e *Endpoint) hangs(h breaker.Hang) bool {
	var own *Model
	others := int64(0)
	for m := range e.Models() {
		if h.Of(m.key) {
			own = m
		} else {
			others = max(others, m.used.Load())
		}
	}
	switch {
	case own == nil || own.used.Load() > h.Since+int64(h.Slow/2): // which is more than those take that were there before
		return false
	case others <= h.Since:
		return !h.Many && others > h.Since-askedWithin
	case h.Many:
		e.pairFor(own.key, own.name).Hang(h)
	}
	return true
}

package picker

import (
	"math"

	"github.com/mlbalancer/mlbalancer/health"
)

// standing is what is known of an endpoint's health beside its breaker, as bits of one word that every pick reads. 0: there is nothing to say.
type standing uint32

const (
	notReady  standing = 1 << iota // a source, or the policy's parent, says that the server takes no calls
	starting                       // and none has said otherwise since it was connected
	leaving                        // a source says that the server is going away
	ailing                         // its score is low
	ramping                        // it is new, and gets its share little by little
	selective                      // a source says which models the server can be asked for
	serving                        // and some model is ready
	listed                         // and it has named each model that the server has
	disputed                       // more than one has
	explicit                       // the server loads no model because it is asked for it
)

// barred are the bits of an endpoint that is out, whatever the model, unless panic lets it in.
const barred = leaving | ailing

// settle derives the endpoint's standing, and if models is true the state of each of its models, from what is said of it and is not stale. Caller must
// hold the lock of e.reports.
func (g *Guard) settle(e *Endpoint, now int64, models bool) {
	rs := &e.reports
	var s standing
	expires := int64(math.MaxInt64)
	against, lazy := false, false
	rs.passed = rs.passed || rs.parent == health.ServerReady
	for i := range rs.sources {
		w := &rs.sources[i]
		if w.until == 0 {
			continue
		}
		if now >= w.until {
			w.withdraw()
			models = true
			continue
		}
		expires = min(expires, w.until)
		switch w.server {
		case health.ServerReady:
			rs.heard = true
		case health.ServerNotReady:
			against = true
		case health.ServerDraining:
			s |= leaving
		}
		switch w.onDemand {
		case health.No:
			s |= explicit
		case health.Yes:
			lazy = true
		}
		if w.some {
			s |= selective
		}
		switch {
		case w.complete && s&listed != 0:
			s |= disputed
		case w.complete:
			s |= listed
		}
	}
	if lazy { // who says so knows the server better than who takes it for one of a kind
		s &^= explicit
	}
	before := e.stands()
	if models {
		s |= g.settleModels(e, now)
	} else {
		s |= before & serving
	}
	rs.heard = rs.heard || s&serving != 0
	started := rs.heard || rs.passed && !against
	against = against || rs.parent == health.ServerNotReady
	s |= rs.readiness(before, now, against, started)
	if s&notReady != 0 && !against {
		expires = min(expires, rs.steady+rs.steadyFor())
	}
	rs.expires.Store(expires)
	e.stand(s, ^(ailing | ramping))
}

// settleModels derives the state of each model from what the sources say of it. The latest word counts, for who has spoken of models since knows
// better, and one at first hand before all others, but that a model cannot answer counts whoever says so.
func (g *Guard) settleModels(e *Endpoint, now int64) (s standing) {
	d := shift{residency: &g.residency, now: now}
	defer d.done()
	for m := range e.Models() {
		state := e.reports.stateOf(m)
		if state == health.ModelReady {
			s |= serving
			if m.settled != health.ModelReady { // what it answered before is over
				g.absent.found(e, m.key, now)
			}
		}
		m.state.Store(uint32(state)) // a model that has just been noted has it already, but is nowhere in the residency yet
		d.moved(e, m, m.settled, state)
		m.settled = state
	}
	return s
}

// stands returns the endpoint's standing.
func (e *Endpoint) stands() standing { return standing(e.standing.Load()) }

// stand replaces those bits of the endpoint's standing that are in mask.
func (e *Endpoint) stand(s, mask standing) {
	for {
		old := e.standing.Load()
		if e.standing.CompareAndSwap(old, old&^uint32(mask)|uint32(s&mask)) {
			return
		}
	}
}

// fit reports whether the endpoint's health lets it take the call. panic says that too few endpoints are well: then only those are left out that
// have never been, and what is said of models still holds.
func (e *Endpoint) fit(q *Query, panic bool) bool {
	s := e.stands() &^ ramping
	return s == 0 || e.judge(s, q, panic)
}

func (e *Endpoint) judge(s standing, q *Query, panic bool) bool {
	if s&barred != 0 && !panic {
		return false
	}
	if s&selective != 0 && q.ModelID != "" && q.Type != Update && !q.anywhere {
		switch e.holds(s, q.Key) {
		case health.ModelReady:
			return true
		case health.ModelUnavailable:
			return false
		case health.ModelAbsent, health.ModelLoading:
			if s&explicit != 0 {
				return false
			}
		}
	}
	return s&notReady == 0 || panic && s&starting == 0 || q.anywhere && s&serving != 0
}

// holds returns what is known of a model on the endpoint, whose standing is s.
func (e *Endpoint) holds(s standing, key uint64) health.ModelState {
	if s&selective == 0 {
		return health.ModelUnknown
	}
	if m := e.models.get(key); m != nil {
		return health.ModelState(m.state.Load())
	}
	if s&listed != 0 {
		return health.ModelAbsent
	}
	return health.ModelUnknown
}

// well reports whether the endpoint takes calls for some models at least, as far as its health goes.
func (e *Endpoint) well() bool {
	s := e.stands()
	return s&barred == 0 && s&(notReady|serving) != notReady
}

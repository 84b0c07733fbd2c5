package picker

import (
	"math"
	"reflect"
	"slices"
	"sync/atomic"
	"time"
)

// Status says whether an endpoint can take a call now.
type Status uint8

const (
	// Down: not connected, or known to refuse calls. It is the zero value.
	Down Status = iota
	// Pending: connecting for so short a time that its calls had better wait than go elsewhere.
	Pending
	// Ready: connected and usable.
	Ready
)

// String returns the status in lower case.
func (s Status) String() string {
	switch s {
	case Ready:
		return "ready"
	case Pending:
		return "pending"
	}
	return "down"
}

// Member is one endpoint's part in a membership.
type Member struct {
	// Endpoint holds the live numbers. Nil marks a hole: an index that no endpoint has.
	*Endpoint
	// Weight is the endpoint's capacity relative to one of weight 1. 0 means that it gets no calls.
	Weight float64
}

// Plan names the strategies of a Table.
type Plan struct {
	Inference Options // for calls that name a model
	Update    Options // for updates, and for calls that name no model
	Guard     *Guard  // who may be sent calls; nil lets every ready endpoint be
}

func (p Plan) equal(o Plan) bool {
	return p.Guard == o.Guard && reflect.DeepEqual(p.Inference, o.Inference) && reflect.DeepEqual(p.Update, o.Update)
}

// Table is an immutable view of a membership, the status of each endpoint and the strategies that choose among them.
// It is safe for concurrent use.
type Table struct {
	plan      Plan
	members   []Member
	status    []Status
	ready     []uint32    // indices of members that are Ready and have a weight
	takers    []*Endpoint // those members by their index, and nil for all others
	weight    float64     // sum of the weights of the ready members
	pending   bool        // some member with a weight is Pending
	inference Strategy
	update    Strategy
	sums      *totals
}

// NewTable returns the table of a membership. status has one entry per member; neither slice may be changed afterwards. Strategies
// are taken over from prev where plan and membership are the same, and are built from those of prev where only the membership
// changed; if nothing changed the table is prev itself. prev may be nil.
func NewTable(prev *Table, plan Plan, members []Member, status []Status, rand func() uint64) *Table {
	if prev != nil && slices.Equal(prev.members, members) && slices.Equal(prev.status, status) && prev.plan.equal(plan) {
		return prev
	}
	t := &Table{plan: plan, members: members, sums: &totals{}}
	for i, m := range members {
		if m.Endpoint != nil {
			m.slot.Store(int32(i))
		}
	}
	t.inference = strategyFor(prev, plan.Inference, members, rand, (*Table).inferenceOf)
	t.update = strategyFor(prev, plan.Update, members, rand, (*Table).updateOf)
	t.setStatus(status)
	return t
}

// WithStatus returns a table that differs from t in status only.
func (t *Table) WithStatus(status []Status) *Table {
	u := *t
	u.sums = &totals{}
	u.setStatus(status)
	return &u
}

func (t *Table) inferenceOf() (Options, Strategy) { return t.plan.Inference, t.inference }
func (t *Table) updateOf() (Options, Strategy)    { return t.plan.Update, t.update }

func strategyFor(prev *Table, o Options, members []Member, rand func() uint64, of func(*Table) (Options, Strategy)) Strategy {
	var previous Strategy
	if prev != nil {
		if po, ps := of(prev); reflect.DeepEqual(po, o) {
			if slices.Equal(prev.members, members) {
				return ps
			}
			previous = ps
		}
	}
	return o.Build(Build{Members: members, Previous: previous, Rand: rand})
}

func (t *Table) setStatus(status []Status) {
	t.status = status
	t.ready = make([]uint32, 0, len(status))
	t.takers = make([]*Endpoint, len(status))
	t.weight, t.pending = 0, false
	for i, s := range status {
		m := &t.members[i]
		if m.Endpoint == nil || !(m.Weight > 0) {
			continue
		}
		switch s {
		case Ready:
			t.ready = append(t.ready, uint32(i))
			t.takers[i] = m.Endpoint
			t.weight += m.Weight
		case Pending:
			t.pending = true
		}
	}
	// The first calls are placed by what servers hold if that is known already; later on Watch sees to it.
	if g := t.plan.Guard; g != nil && !g.residency.informed.Load() {
		g.residency.informed.Store(t.informed())
	}
}

// informed reports whether most of the ready endpoints' servers say which models they hold.
func (t *Table) informed() bool {
	n := 0
	for _, i := range t.ready {
		if t.members[i].stands()&(listed|leaving) != 0 {
			n++
		}
	}
	return 2*n > len(t.ready)
}

// Pick chooses an endpoint for one request: by the inference strategy if it names a model and is not an update, else by the update
// strategy. If q avoids all that is ready, it is placed as if it avoided nothing, unless q.Fresh says otherwise. If nobody that is said to hold
// the model takes the call, a server is to say so, best one that has not been asked lately: what was said of it may be older than the model's
// last move. Pick neither locks nor allocates.
func (t *Table) Pick(q *Query) Choice {
	if len(t.ready) == 0 {
		return t.refuse()
	}
	q.Outlook = Outlook{}
	s := t.update
	if q.Type != Update && q.ModelID != "" {
		s = t.inference
	}
	c := s.Pick(t, q)
	if c.Index >= 0 || c.Reason == Wait {
		return c
	}
	avoid := q.Avoid
	if len(avoid) > 0 { // what is left was tried before
		if q.Fresh {
			if g := t.plan.Guard; c.Reason == Refused && g != nil && g.adrift(q.Key, q.Now) {
				if c = t.beyond(q, false); c.Index >= 0 {
					return c
				}
			}
			return Choice{Index: -1, Reason: Tried}
		}
		q.Avoid = nil
		c = s.Pick(t, q)
	}
	if c.Reason == Refused && t.plan.Guard != nil {
		if c = t.beyond(q, false); c.Index < 0 {
			c = t.beyond(q, true)
		}
	}
	q.Avoid = avoid
	return c
}

// beyond places a query where its model is not said to be, and if again is true also where servers have just answered that it is not.
func (t *Table) beyond(q *Query, again bool) Choice {
	q.anywhere, q.again = true, again
	c := t.update.Pick(t, q)
	q.anywhere, q.again = false, false
	return c
}

// Len returns the number of members, holes included; indices of choices are below it.
func (t *Table) Len() int { return len(t.members) }

// Member returns the member at an index.
func (t *Table) Member(i int) Member { return t.members[i] }

// Status returns the status of the member at an index.
func (t *Table) Status(i int) Status { return t.status[i] }

// Statuses returns the status of each member, by index. The slice is not to be changed.
func (t *Table) Statuses() []Status { return t.status }

// Ready returns the indices of the members that are Ready and have a weight above 0, ascending. The slice is not to be changed.
func (t *Table) Ready() []uint32 { return t.ready }

// InferenceStrategy returns the strategy for calls that name a model.
func (t *Table) InferenceStrategy() Strategy { return t.inference }

// Lists reports whether an endpoint is a member.
func (t *Table) Lists(e *Endpoint) bool { return t.seats(int(e.slot.Load()), e) }

// Takes reports whether an endpoint is a member that is Ready and has a weight above 0.
func (t *Table) Takes(e *Endpoint) bool { return t.takes(int(e.slot.Load()), e) }

// takes is Takes for the endpoint at an index, if it is there.
func (t *Table) takes(i int, e *Endpoint) bool { return i < len(t.takers) && t.takers[i] == e }

// usable reports whether the member at i may be chosen for q.
func (t *Table) usable(i uint32, q *Query) bool {
	e := t.takers[i]
	return e != nil && t.admits(e, q)
}

// seats reports whether an endpoint is the one at an index.
func (t *Table) seats(i int, e *Endpoint) bool {
	return i < len(t.members) && t.members[i].Endpoint == e
}

// admits reports whether a ready endpoint may be chosen for q.
func (t *Table) admits(e *Endpoint, q *Query) bool {
	if len(q.Avoid)+q.nPassed > 0 && q.Avoids(e) {
		return false
	}
	return t.plan.Guard == nil || t.plan.Guard.admits(e, q)
}

// refuse is the Choice when nothing may be chosen: wait if something is about to be ready.
func (t *Table) refuse() Choice {
	if len(t.ready) > 0 {
		return Choice{Index: -1, Reason: Refused}
	}
	if t.pending {
		return Choice{Index: -1, Reason: Wait}
	}
	return Choice{Index: -1, Reason: NoneReady}
}

// totalsAge is how old the totals may be: within it a thousand endpoints are read once, which costs about 1 % of a core. Changes of
// membership or status start them anew.
const totalsAge = int64(time.Millisecond)

// totals are sums over the ready endpoints that are taken now and then by whichever pick finds them too old, so that no pick ever writes
// to a counter that others share.
type totals struct {
	stamp  atomic.Int64  // time of the last sum, 0 before the first
	cost   atomic.Int64  // cost in flight
	work   atomic.Uint64 // float64: work done lately
	others atomic.Uint64 // float64: calls that others had in flight on the mean endpoint, as servers said last
}

// totals returns the sums, at most totalsAge old.
func (t *Table) totals(now int64) *totals {
	l := t.sums
	last := l.stamp.Load()
	// Until the first sum is known everybody takes it; later ones are taken by one while the others go by the last.
	if last == 0 || now-last > totalsAge || last-now > totalsAge {
		if last == 0 || l.stamp.CompareAndSwap(last, max(now, 1)) {
			var cost, calls int64
			var work float64
			for _, i := range t.ready {
				cost += t.members[i].loadAt(now)
				work += t.members[i].work.at(now)
				calls += t.members[i].facts.others(now)
			}
			l.others.Store(math.Float64bits(float64(calls) / float64(max(1, len(t.ready)))))
			l.cost.Store(cost)
			l.work.Store(math.Float64bits(work))
			l.stamp.Store(max(now, 1))
		}
	}
	return l
}

// costPerWeight returns the mean cost in flight per unit of weight over the ready endpoints.
func (t *Table) costPerWeight(now int64) float64 {
	return float64(t.totals(now).cost.Load()) / t.weight
}

// othersPerEndpoint returns how many calls of others the mean ready endpoint has, as far as servers have said.
func (t *Table) othersPerEndpoint(now int64) float64 {
	return math.Float64frombits(t.totals(now).others.Load())
}

// minWork is the work per endpoint, in tokens, below which shares of it mean nothing.
const minWork = 32 * DefaultTokens

// share returns how many endpoints of weight 1 an amount of work would fill if all were equally busy, and 0 while too little has
// been done to tell.
func (t *Table) share(work float64, now int64) float64 {
	total := math.Float64frombits(t.totals(now).work.Load())
	if total < minWork*float64(len(t.ready)) {
		return 0
	}
	return work / total * t.weight
}

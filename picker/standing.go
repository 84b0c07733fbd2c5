package picker

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

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

// reports is what the sources said of an endpoint last. Reports come from their own goroutines, and picks read what follows from them:
// the endpoint's standing, the states of its models, and its facts.
type reports struct {
	mu      sync.Mutex
	sources [health.MaxSources]word
	heard   bool               // that the server is or was ready, on this connection
	parent  health.ServerState // the verdict of what stands above the policy
	passed  bool               // that was ready, on this connection; it is too where nothing is checked

	// A server that says now this, now that is out at once, and back when it has said nothing against it for a while.
	left    int   // how often it has left, lately
	leftAt  int64 // when it did last
	steady  int64 // since when nothing has been said against it; 0 if something is
	expires atomic.Int64
}

// word is what one source said last.
type word struct {
	models   *[]*Model // those of its last report, in its order, if that was complete; nil before the first that was
	at       int64     // when it last spoke of models
	until    int64     // when it is stale; 0 if there is no word
	server   health.ServerState
	onDemand health.Answer
	complete bool
	// firsthand says that the source is the server itself, which speaks when something changes.
	firsthand bool
	some      bool   // it has said something of some model
	void      bool   // it is over once the source speaks again
	round     uint16 // what it said of models in another round is void
}

const (
	// steadyFor is how long a server must have been ready that was not; twice as long for each time it went back and forth lately. Two or three
	// times of the time between two looks at it are enough for one that means it.
	steadyFor = int64(100 * time.Millisecond)
	// maxSteadyFor bounds that.
	maxSteadyFor = int64(2 * time.Second)
	// leftMemory is for how long a server is remembered to have gone.
	leftMemory = int64(10 * time.Second)
)

// Report takes in what a source, by its number, says of an endpoint. It may be called at any time, from any goroutine; it takes a lock of
// the endpoint's own, and allocates only for models that are new. The report may be used again afterwards.
func (g *Guard) Report(e *Endpoint, source int, now int64, r *health.Report) {
	if r.Load.Has != 0 {
		e.facts.note(e, now-int64(r.Age), &r.Load, r.Interval)
		if r.Load.Victim == health.VictimIdle {
			e.facts.copied.Store(int32(g.residency.copies(r.Load.VictimModel)))
		}
	}
	if r.Server == health.ServerUnknown && r.OnDemand == health.Unknown && len(r.Models) == 0 && !r.Complete {
		return
	}
	rs := &e.reports
	rs.mu.Lock()
	defer rs.mu.Unlock()
	w := &rs.sources[source]
	if w.void {
		w.withdraw()
	}
	said := *w
	if r.Server != health.ServerUnknown { // else what was said before stands
		w.server = r.Server
	}
	if r.OnDemand != health.Unknown {
		w.onDemand = r.OnDemand
	}
	changed := said.until == 0 || said.server != w.server || said.onDemand != w.onDemand
	w.until = math.MaxInt64
	if r.Interval > 0 {
		w.until = now - int64(r.Age) + max(int64(g.health.Load().StaleAfter), 3*int64(r.Interval))
	}
	if r.Complete || len(r.Models) > 0 {
		changed = w.list(e, source, now, r) || changed
		w.at, w.firsthand = now-int64(r.Age), r.Firsthand
		changed = changed || e.stands()&disputed != 0
	}
	if changed || now >= rs.expires.Load() {
		g.settle(e, now, changed)
		return
	}
	rs.expires.Store(min(rs.expires.Load(), w.until))
}

// Anew says that a source starts anew over the same connection: of what it said of an endpoint nothing stands once it speaks again.
func (g *Guard) Anew(e *Endpoint, source int) {
	e.reports.mu.Lock()
	defer e.reports.mu.Unlock()
	e.reports.sources[source].void = true
}

// Withdraw takes back what a source said of an endpoint.
func (g *Guard) Withdraw(e *Endpoint, source int, now int64) {
	rs := &e.reports
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if w := &rs.sources[source]; w.until != 0 {
		w.withdraw()
		g.settle(e, now, true)
	}
}

// Verdict takes in what stands above the policy and watches its connections says of an endpoint: a parent policy that ejects, or client-side
// health checking. ServerUnknown is no verdict.
func (g *Guard) Verdict(e *Endpoint, now int64, s health.ServerState) {
	rs := &e.reports
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.parent != s {
		rs.parent = s
		g.settle(e, now, false)
	}
}

// forget makes the endpoint one that no source has spoken of.
func (rs *reports) forget() {
	for i := range rs.sources {
		rs.sources[i].withdraw()
	}
	rs.parent, rs.passed, rs.heard, rs.left, rs.steady = health.ServerUnknown, false, false, 0, 0
}

func (w *word) withdraw() {
	*w = word{round: w.round + 1}
}

// said returns the mark that a source of a round leaves at a model.
func (w *word) said(s health.ModelState) uint16 { return w.round<<3 | uint16(s) }

// read returns what a mark says, if it is of the present round.
func (w *word) read(mark uint16) health.ModelState {
	if mark>>3 != w.round&(1<<13-1) {
		return health.ModelUnknown
	}
	return health.ModelState(mark & 7)
}

// list notes what a report says of models, and reports whether the state of one has changed for the source.
func (w *word) list(e *Endpoint, source int, now int64, r *health.Report) (changed bool) {
	if !r.Complete {
		for i := range r.Models {
			changed = w.one(e, source, now, &r.Models[i]) || changed
		}
		w.some = w.some || len(r.Models) > 0
		return changed
	}
	if w.models == nil {
		w.models = &[]*Model{}
	}
	known := *w.models
	same := w.complete && len(known) == len(r.Models)
	for i := 0; same && i < len(r.Models); i++ { // the usual case: the same models as the last time, in the same state
		m := known[i]
		same = m.name == r.Models[i].Name && m.marks[source] == w.said(r.Models[i].State)
	}
	if same {
		for i := range r.Models {
			known[i].note(now, &r.Models[i])
		}
		return false
	}
	w.round++
	known = known[:0]
	w.complete = true
	for i := range r.Models {
		m := e.models.admit(Key(r.Models[i].Name), r.Models[i].Name)
		if m == nil {
			w.complete = false // there are more than can be kept: then nothing is said of those that are not
			continue
		}
		m.marks[source] = w.said(r.Models[i].State)
		m.note(now, &r.Models[i])
		known = append(known, m)
	}
	*w.models = known
	w.some = true
	return true
}

// one notes what is said of one model.
func (w *word) one(e *Endpoint, source int, now int64, r *health.Model) (changed bool) {
	key := Key(r.Name)
	m := e.models.get(key)
	if m == nil && r.State != health.ModelUnknown {
		m = e.models.admit(key, r.Name)
	}
	if m == nil {
		return false
	}
	m.note(now, r)
	mark := w.said(r.State)
	changed = m.marks[source] != mark
	m.marks[source] = mark
	return changed
}

// note keeps the numbers of a report, and the model from being forgotten while the report is still being read.
func (m *Model) note(now int64, r *health.Model) {
	if m.state.Load() == uint32(health.ModelUnknown) {
		m.state.CompareAndSwap(uint32(health.ModelUnknown), uint32(r.State))
	}
	if r.Service > 0 {
		m.reported.Store(int64(r.Service))
	}
	if r.State == health.ModelLoading {
		m.readyAt.Store(now + int64(r.ETA))
	}
}

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
		s |= g.settleModels(e)
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

// readiness returns whether the server counts as not ready, where something is said against it or not, and it has been ready or not.
func (rs *reports) readiness(before standing, now int64, against, started bool) standing {
	if against {
		if before&notReady == 0 && started {
			if now-rs.leftAt > leftMemory {
				rs.left = 0
			}
			rs.left++
			rs.leftAt = now
		}
		rs.steady = 0
		if !started {
			return notReady | starting
		}
		return notReady
	}
	if rs.steady == 0 {
		rs.steady = now
	}
	if before&notReady != 0 && before&starting == 0 && now-rs.steady < rs.steadyFor() {
		return notReady
	}
	return 0
}

func (rs *reports) steadyFor() int64 {
	return min(steadyFor<<max(0, rs.left-1), maxSteadyFor)
}

// settleModels derives the state of each model from what the sources say of it. The latest word counts, for who has spoken of models since knows
// better, and one at first hand before all others, but that a model cannot answer counts whoever says so.
func (g *Guard) settleModels(e *Endpoint) (s standing) {
	d := shift{residency: &g.residency}
	defer d.done()
	for m := range e.Models() {
		state := e.reports.stateOf(m)
		if state == health.ModelReady {
			s |= serving
		}
		m.state.Store(uint32(state)) // a model that has just been noted has it already, but is nowhere in the residency yet
		d.moved(e, m, m.settled, state)
		m.settled = state
	}
	return s
}

func (rs *reports) stateOf(m *Model) health.ModelState {
	state, at, firsthand := health.ModelUnknown, int64(-1), false
	for i := range rs.sources {
		w := &rs.sources[i]
		if w.until == 0 {
			continue
		}
		said := w.read(m.marks[i])
		if said == health.ModelUnknown && w.complete {
			said = health.ModelAbsent
		}
		switch {
		case said == health.ModelUnavailable:
			return said
		case said == health.ModelUnknown || firsthand && !w.firsthand:
		case w.at > at || w.firsthand && !firsthand || w.at == at && said == health.ModelAbsent:
			state, at, firsthand = said, w.at, w.firsthand
		}
	}
	return state
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
	return s&notReady == 0 || panic && s&starting == 0
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

package picker

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mlbalancer/mlbalancer/health"
)

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
		if r.Load.Has&health.HasVictim != 0 {
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

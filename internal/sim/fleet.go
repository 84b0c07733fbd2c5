package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/mlbalancer/mlbalancer/picker"
)

// Fleet is the servers, the clients and the traffic of one run.
type Fleet struct {
	*Scenario
	seed     uint64
	kind     Kind
	policy   Policy
	now      time.Duration
	agenda   agenda
	servers  []*server
	members  []int32 // indices of the servers that are up
	catalog  *catalog
	arrivals *arrivals
	names    []string // of models
	keys     []uint64
	hosts    []string // names of servers
	own      []int32  // calls in flight by client and server
	rand     *rand.Rand

	deadlines fifo
	free      []*Call
	ids       uint64
	open      int // measured calls that have not ended
	hottest   []int
	heard     Report
	result    *Result
}

// newFleet returns a fleet at time 0.
func newFleet(sc *Scenario, k Kind, seed uint64) *Fleet {
	f := &Fleet{Scenario: sc, seed: seed, kind: k, rand: source(seed, forPolicy, 0)}
	f.catalog = newCatalog(sc, seed)
	f.arrivals = newArrivals(sc, f.catalog, seed)
	n := len(f.catalog.share)
	f.names, f.keys = make([]string, n), make([]uint64, n)
	for m := range f.names { // the seed is part of each name, so that no luck with hashes is common to all runs
		f.names[m] = fmt.Sprintf("model-%d.%d", m, seed)
		f.keys[m] = picker.Key(f.names[m])
	}
	f.servers, f.hosts = make([]*server, sc.total()), make([]string, sc.total())
	f.hottest = make([]int, sc.total())
	for i := range f.servers {
		f.hosts[i] = fmt.Sprintf("server-%d.%d", i, seed)
		f.servers[i] = &server{
			fleet: f, index: int32(i), slow: 1, up: i < sc.Servers, broken: -1, slots: sc.Slots,
			models: make([]*model, n), draws: source(seed, forLoads, i), gauges: gauges{service: make([]float32, n)},
		}
	}
	f.enroll()
	f.own = make([]int32, sc.Clients*len(f.servers))
	if sc.Everywhere {
		for _, s := range f.servers {
			for m := range min(n, sc.Slots) {
				s.place(int32(m), false)
			}
		}
	}
	f.result = &Result{Scenario: sc.ID, Policy: k.Name, Seed: seed}
	f.policy = k.build(f)
	return f
}

func (f *Fleet) enroll() {
	f.members = f.members[:0]
	for _, s := range f.servers {
		if s.up {
			f.members = append(f.members, s.index)
		}
	}
}

// inFlight returns a client's counts of its calls in flight, by server.
func (f *Fleet) inFlight(client int32) []int32 {
	n := len(f.servers)
	return f.own[int(client)*n : (int(client)+1)*n]
}

// never is later than anything happens.
const never = time.Duration(math.MaxInt64)

// run lets time pass until all measured calls have ended.
func (f *Fleet) run() *Result {
	f.start()
	for f.arrivals.at < f.To || f.open > 0 {
		event, eventDue := f.agenda.next()
		limit, limited := f.deadlines.next()
		arrival := f.arrivals.at
		if arrival >= f.To { // nobody calls any more, but some wait for an answer
			arrival = never
		}
		switch {
		case eventDue && event <= arrival && (!limited || event <= limit):
			f.happen(f.agenda.pop())
		case limited && limit <= arrival:
			f.expire()
		default:
			f.arrive()
		}
	}
	return f.result
}

// start puts on the agenda what happens by itself.
func (f *Fleet) start() {
	if f.kind.hears && f.Reports.Mode.periodic() {
		r := source(f.seed, forReports, 0)
		for _, s := range f.servers {
			f.agenda.add(event{at: time.Duration(r.Float64() * float64(f.Reports.Every)), kind: eventReport, index: s.index})
		}
	}
	if f.kind.ticks > 0 {
		f.agenda.add(event{at: f.kind.ticks, kind: eventTick})
	}
	if len(f.Changes) > 0 {
		f.agenda.add(event{at: f.From, kind: eventChange})
	}
}

// happen lets an event happen.
func (f *Fleet) happen(e event) {
	f.now = e.at
	c := e.call
	if c != nil && c.epoch != e.epoch {
		return
	}
	switch e.kind {
	case eventServed:
		f.servers[e.index].served(f.now, c)
		f.ended(c, OutcomeSuccess)
	case eventFailed:
		f.ended(c, c.outcome)
	case eventLoaded:
		f.servers[e.index].loadDone(f.now)
	case eventReport:
		f.broadcast(f.servers[e.index])
		f.agenda.add(event{at: f.now + f.Reports.Every, kind: eventReport, index: e.index})
	case eventTick:
		f.policy.Tick(f.now)
		f.agenda.add(event{at: f.now + f.kind.ticks, kind: eventTick})
	case eventChange:
		f.change()
	}
}

// arrive lets the next call arrive.
func (f *Fleet) arrive() {
	c := f.newCall()
	f.arrivals.fill(c)
	f.now = c.Start
	if c.Start >= f.From {
		f.open++
	}
	f.deadlines.push(c)
	f.place(c)
}

// place sends a call where the policy says.
func (f *Fleet) place(c *Call) {
	i := f.policy.Place(f.now, c)
	if i < 0 {
		f.close(c, OutcomeRefused)
		return
	}
	c.Server, c.Sent, c.cold = int32(i), f.now, false
	c.Tried[c.Attempts] = c.Server
	c.Attempts++
	f.inFlight(c.Client)[i]++
	if c.Model == 0 && f.now < f.From {
		f.hottest[i]++
	}
	f.servers[i].submit(f.now, c)
}

// ended is the end of an attempt.
func (f *Fleet) ended(c *Call, o Outcome) {
	f.inFlight(c.Client)[c.Server]--
	c.epoch++
	f.policy.Done(f.now, c, o)
	if s := f.servers[c.Server]; f.kind.hears && f.Reports.onResponse() && o != OutcomeExpired && s.up && !s.hollow {
		s.sample(f.now)
		s.report(f.now, &f.heard)
		f.heard.Response = true
		f.policy.Report(f.now, int(c.Client), int(c.Server), &f.heard)
	}
	if o != OutcomeSuccess && o != OutcomeExpired && c.Attempts < maxAttempts && f.policy.Again(f.now, c, o) {
		f.place(c)
		return
	}
	f.close(c, o)
}

// expire ends the call whose deadline is the next.
func (f *Fleet) expire() {
	c := f.deadlines.pop()
	f.now = c.Deadline
	f.servers[c.Server].cancel(f.now, c)
	f.ended(c, OutcomeExpired)
}

// close is the end of a call.
func (f *Fleet) close(c *Call, o Outcome) {
	if c.Start >= f.From {
		f.open--
		f.result.add(f, c, o)
	}
	f.release(c)
}

// broadcast tells all clients what a server reports.
func (f *Fleet) broadcast(s *server) {
	if !s.up {
		return
	}
	s.sample(f.now)
	s.report(f.now, &f.heard)
	for client := range f.Clients {
		f.policy.Report(f.now, client, int(s.index), &f.heard)
	}
}

// loadBegins counts a load.
func (f *Fleet) loadBegins(now time.Duration) {
	if now >= f.From {
		f.result.Loads++
	}
}

// newCall returns a call without anything but its epoch.
func (f *Fleet) newCall() *Call {
	f.ids++
	n := len(f.free)
	if n == 0 {
		return &Call{id: f.ids}
	}
	c := f.free[n-1]
	f.free = f.free[:n-1]
	*c = Call{epoch: c.epoch, id: f.ids}
	return c
}

// release keeps a call for later use.
func (f *Fleet) release(c *Call) {
	c.epoch++
	c.held, c.id = nil, 0
	f.free = append(f.free, c)
}

package picker

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/mlbalancer/mlbalancer/health"
)

// A queue does not say whether it is there to stay. Calls that waited for a load come all at once, and a server whose models have less work for it than
// it can do works them off; another copy would come too late, and push something out. So the affinity strategy asks how busy an endpoint will
// be: the work that there is for each model, by the calls of the last seconds, is dealt to the endpoints that hold it, those that are least busy
// first.

const (
	// forecastMemory is the time over which calls are counted, in loads: long enough for hundreds where it matters, short enough to see a model become
	// hot while a second copy is still worth something. forecasts is how many forecasts are made in it.
	forecastMemory = 2
	forecasts      = 20
	// minMemory and maxMemory bound what follows from that.
	minMemory, maxMemory = 0.5 * float64(time.Second), 60 * float64(time.Second)
	// forecastWeight is that of a new forecast of an endpoint: each depends on the one before.
	forecastWeight = 0.5
	// leastShare is that of the calls which a client is taken to have at least: of what is less it knows nothing.
	leastShare = 1. / 256
	// leastBusy is the utilization below which endpoints are alike.
	leastBusy = 0.2
)

// forecast is what forecasts are made from. It is for Watch alone.
type forecast struct {
	at          int64   // when the last one was made; 0 before the first
	memory      float64 // of calls, in nanoseconds; 0 before the first
	own, others float64 // calls in flight on all endpoints, on average: this client's, and those of others
}

// demand is the work that there is for one model.
type demand struct {
	picks atomic.Uint32 // calls that were placed since the last forecast
	rate  float64       // of those, per nanosecond; of Watch alone
	since int64         // when the first was counted; 0 before. Likewise
}

// foresee makes a forecast if one is due.
func (s *affinity) foresee(g *Guard, t *Table, now int64) {
	f := &g.forecast
	passed := float64(now - f.at)
	if passed < f.memory/forecasts {
		return
	}
	first := f.at == 0
	f.at, f.memory = now, s.memory(t)
	d := g.residency.byModel.Load()
	if first || d == nil {
		return
	}
	for _, i := range t.ready {
		t.members[i].Endpoint.due = 0
	}
	mean, own := g.service.value(), 0.0
	for i := range d.slots {
		if p := d.slots[i].at; p != nil {
			p.demand.update(now, passed, f.memory)
			own += p.demand.rate * p.serviceOr(mean)
		}
	}
	share := f.share(t, now, passed, own)
	for i := range d.slots {
		if p := d.slots[i].at; p != nil && p.demand.rate > 0 {
			g.deal(t, p, p.demand.rate*p.serviceOr(mean)/share, now)
		}
	}
	for _, i := range t.ready {
		e := t.members[i].Endpoint
		workers := s.workers
		if w := e.facts.workers.Load(); w > 0 {
			workers = float64(w)
		}
		u := e.due / workers * e.slow.factor(now, mean)
		e.forecast.Store(math.Float64bits(e.foreseen() + forecastWeight*(u-e.foreseen())))
	}
}

// share returns this client's share of the calls, of late. It has as many in flight as are seen now and then, and least, which it keeps busy, at least: one
// that seldom has a call in flight is seldom seen to have one.
func (f *forecast) share(t *Table, now int64, passed, least float64) float64 {
	var own, others float64
	for _, i := range t.ready {
		e := t.members[i].Endpoint
		own += float64(e.InFlight())
		others += float64(e.facts.others(now))
	}
	weight := 1 - math.Exp(-passed/f.memory)
	f.own += weight * (own - f.own)
	f.others += weight * (others - f.others)
	own = max(f.own, least)
	if all := own + f.others; all > 0 {
		return max(own/all, leastShare)
	}
	return 1
}

// memory returns the time over which calls are to be counted.
func (s *affinity) memory(t *Table) float64 {
	load := math.Inf(1)
	for _, i := range t.ready {
		f := &t.members[i].facts
		if l := f.loadTime.Load(); l > 0 && health.Fields(f.has.Load())&health.HasLoadTime != 0 {
			load = min(load, float64(l)) // one that is slow says more
		}
	}
	if math.IsInf(load, 1) {
		load = s.load
	}
	return min(max(forecastMemory*load, minMemory), maxMemory)
}

// update takes in what was counted in a time.
func (d *demand) update(now int64, passed, memory float64) {
	n := float64(d.picks.Swap(0))
	if d.since == 0 {
		if n == 0 {
			return
		}
		d.since = now - int64(passed)
	}
	memory = min(memory, float64(now-d.since)) // at first all that is known is what was counted now
	weight := 1.0
	if memory > passed {
		weight = 1 - math.Exp(-passed/memory)
	}
	d.rate += weight * (n/passed - d.rate)
}

// deal deals an amount of work, in workers that it keeps busy, to the endpoints that hold the model and take calls.
func (g *Guard) deal(t *Table, p *placement, work float64, now int64) {
	hs := p.held()
	sum := 0.0
	for i := range hs {
		sum += g.eligibility(t, hs[i].endpoint, now)
	}
	if sum == 0 {
		return
	}
	for i := range hs {
		e := hs[i].endpoint
		e.due += work * g.eligibility(t, e, now) / sum
	}
}

// eligibility is the weight by which an endpoint takes part in the work for a model that others hold too.
func (g *Guard) eligibility(t *Table, e *Endpoint, now int64) float64 {
	if !t.takes(int(e.slot.Load()), e) || !g.panic.Load() && (e.stands()&barred != 0 || !e.open(now)) {
		return 0
	}
	u := max(leastBusy, e.foreseen())
	return 1 / (u * u)
}

// foreseen returns how busy the endpoint will be: the work that there is for the models that it holds, over what it can do. It is above 1 where that is
// too much, and 0 before the first forecast.
func (e *Endpoint) foreseen() float64 { return math.Float64frombits(e.forecast.Load()) }

const (
	// calm is the utilization up to which queues go away by themselves, and pressed that at which one is taken for what it is. The more there is to do
	// beyond that the more it will grow: a copy is due up to maxLasting times as soon.
	calm, pressed = 0.6, 0.9
	maxLasting    = 3
)

// lasting returns how much of the endpoint's queue is there to stay: 0 if none is, 1 if it neither grows nor shrinks.
func (e *Endpoint) lasting() float64 {
	if !e.facts.tellsCalls() { // then what others do there is not known
		return 1
	}
	over := max(0, e.foreseen()-calm) / (pressed - calm)
	return min(maxLasting, over*over)
}

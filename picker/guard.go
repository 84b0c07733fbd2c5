package picker

import (
	"sync/atomic"
	"time"

	"github.com/mlbalancer/mlbalancer/breaker"
	"github.com/mlbalancer/mlbalancer/health"
)

// Guard says who may be sent calls: it is what the endpoints of one channel have in common beside a Table. It is safe for concurrent
// use, and outlives the tables that hold it.
type Guard struct {
	// Group holds the endpoints' breakers.
	Group *breaker.Group

	absent   absentees
	perModel atomic.Bool
	panic    atomic.Bool // too few endpoints are usable: go by connectivity alone
	panicAt  atomic.Uint32
	health   atomic.Pointer[health.Config]
	turn     int // whose score is due; of Watch alone

	residency residency
	openings  openings
	forecast  forecast
	service   average // of all models together: how long they take without waiting
}

// NewGuard returns a Guard with the given rules of breakers. rand returns uniformly distributed random numbers and is safe for concurrent
// use.
func NewGuard(c breaker.Config, rand func() uint64) *Guard {
	g := &Guard{Group: breaker.NewGroup(c, rand)}
	g.perModel.Store(true)
	g.SetHealth(health.DefaultConfig())
	return g
}

// SetHealth sets by what rules endpoints' health is judged.
func (g *Guard) SetHealth(c health.Config) { g.health.Store(&c) }

// SetPerModel says whether a model that fails on an endpoint is taken out of that endpoint only, while others there are fine. If not,
// its failures count for the endpoint like any other. It is on by default.
func (g *Guard) SetPerModel(on bool) { g.perModel.Store(on) }

// SetPanicThreshold sets the share of the ready endpoints, 0 to 1, that must be usable: when fewer are, breakers and drains of endpoints are
// ignored, since whatever is wrong is not a few endpoints. 0, the default, never ignores them.
func (g *Guard) SetPanicThreshold(share float64) { g.panicAt.Store(uint32(share * panicScale)) }

const panicScale = 1 << 16

// Panic reports whether breakers and drains of endpoints are being ignored.
func (g *Guard) Panic() bool { return g.panic.Load() }

// Watch does what depends on time alone; it is to be called every 50 to 100 ms with the table in force. It reports whether a
// call that was refused since the last time may have better luck now.
func (g *Guard) Watch(t *Table, now int64) (freed bool) {
	freed = g.Group.Tick(now)
	ready, usable := len(t.ready), 0
	for _, i := range t.ready {
		e := t.members[i].Endpoint
		if e.faulty.Load() {
			freed = e.watchPairs(now) || freed
		}
		g.examine(e, now, int(i))
		if e.open(now) && e.well() {
			usable++
		}
	}
	g.turn++
	g.residency.informed.Store(t.informed())
	if a, ok := t.inference.(*affinity); ok {
		a.foresee(g, t, now)
	}
	panic := float64(usable) < float64(ready)*float64(g.panicAt.Load())/panicScale
	return g.panic.Swap(panic) != panic || freed
}

// watchPairs looks after the breakers of models, and drops those that have nothing to say any more. It reports whether one may
// have changed its mind.
func (e *Endpoint) watchPairs(now int64) (freed bool) {
	e.faulty.Store(false) // before looking: a pair that is made meanwhile sets it again
	for m := range e.Models() {
		p := m.pair.Load()
		if p == nil {
			continue
		}
		if p.Idle(now) {
			m.pair.CompareAndSwap(p, nil)
			continue
		}
		e.faulty.Store(true)
		p.Tick(now)
		freed = freed || p.State() != breaker.Closed && p.Status(now) != breaker.Refusing
	}
	return freed
}

// pairFor returns the breaker of a model on the endpoint, made if need be.
func (e *Endpoint) pairFor(key uint64, model string) *breaker.Pair {
	m := e.models.add(key, model)
	p := m.pair.Load()
	for p == nil {
		fresh := breaker.NewPair(e.breaker, m.name)
		if m.pair.CompareAndSwap(nil, fresh) {
			p = fresh
		} else {
			p = m.pair.Load()
		}
	}
	e.faulty.Store(true)
	return p
}

// slowTime is the time after which a call is slow; see breaker.Config.SlowTime.
func (g *Guard) slowTime(expected, remaining time.Duration) time.Duration {
	return g.Group.SlowTime(expected, remaining)
}

// admits reports whether the endpoint and the model on it may be sent a call.
func (g *Guard) admits(e *Endpoint, q *Query) bool {
	panic := g.panic.Load()
	return (panic || e.open(q.Now)) && e.fit(q, panic) && (q.again || !g.absent.absent(e, q.Key, q.Now)) && e.serving(q.Key, q.Now)
}

// admitsHolder is admits for an endpoint whose server says that it holds the model, or loads it. sound is what e.sound says.
func (g *Guard) admitsHolder(e *Endpoint, m *Model, q *Query, sound bool) bool {
	if len(q.Avoid)+q.nPassed > 0 && q.Avoids(e) {
		return false
	}
	s := e.stands()
	if !sound && !g.panic.Load() && (s&barred != 0 || !e.open(q.Now)) {
		return false
	}
	if m.State() != health.ModelReady && s&(explicit|notReady) != 0 {
		return false
	}
	return !g.absent.absent(e, q.Key, q.Now) && (sound || e.serving(q.Key, q.Now))
}

// sound reports whether nothing at all is held against the endpoint and against any model there, as is usual: no more than what
// is said of the model need be looked at then.
func (e *Endpoint) sound(now int64) bool {
	return e.stands()&(barred|ramping) == 0 && e.breaker.Steady() && now >= e.drainingUntil.Load() && !e.faulty.Load()
}

// services returns how long a call of a query takes without waiting, and how long any call does, in nanoseconds.
func (g *Guard) services(t *Table, p *placement, q *Query) (own, mean float64) {
	if mean = g.service.value(); mean == 0 {
		mean = t.unknownService()
	}
	own = mean
	if p != nil {
		own = p.serviceOr(mean)
	}
	return own * q.size(), mean
}

// unknownService returns how long a call is taken to be worked on before any has been answered. Nobody knows: but models that take long to load take long to
// run, and times that are far too long for them would have a few calls that wait for the first load look like a reason for many more loads.
func (t *Table) unknownService() float64 {
	f := &t.members[t.ready[0]].facts
	if l := f.loadTime.Load(); l > 0 && health.Fields(f.has.Load())&health.HasLoadTime != 0 {
		return min(defaultService, max(1, loadShare*float64(l)))
	}
	return defaultService
}

// serviceOr returns how long a call of the model takes without waiting, in nanoseconds; mean if that is not known.
func (p *placement) serviceOr(mean float64) float64 {
	if hs := p.held(); len(hs) > 0 {
		if s := hs[0].model.reported.Load(); s != 0 {
			return float64(s)
		}
	}
	if s := p.service.value(); s != 0 {
		return s
	}
	return mean
}

// open reports whether the endpoint takes calls: it is not draining, and its breaker would pass one.
func (e *Endpoint) open(now int64) bool {
	return now >= e.drainingUntil.Load() && e.breaker.Status(now) != breaker.Refusing
}

// overdue is the ramp of an endpoint that is to be probed: more than any load makes up for.
const overdue = 1e9

// ramp returns the share of its usual traffic that the endpoint should get: less than 1 for a while after its breaker has closed. One
// that is to be probed gets the next call that meets it: it may look slow or loaded for what it did when it failed, and without a
// probe it would look so for ever. How many probes there are is the breaker's to say.
func (e *Endpoint) ramp(now int64) float64 {
	b := e.breaker
	switch r := b.Ramp(now); {
	case r == 1 || b.State() == breaker.Closed:
		if e.stands()&ramping != 0 {
			return min(r, e.started(now))
		}
		return r
	case b.Status(now) == breaker.Probing:
		return overdue
	}
	return 1 // it is used though it is open: in panic all are alike
}

// serving reports whether the breaker of a model on the endpoint, if there is one, would pass a call.
func (e *Endpoint) serving(model uint64, now int64) bool {
	if !e.faulty.Load() {
		return true
	}
	m := e.models.get(model)
	if m == nil {
		return true
	}
	p := m.pair.Load()
	return p == nil || p.Status(now) != breaker.Refusing
}

const (
	// drainFor is how long an endpoint that said it is going away is left alone, unless it reconnects before: as long as Triton takes
	// to exit by default.
	drainFor = int64(30 * time.Second)
	// lostFor is the same for one that did not say it, but seems to.
	lostFor = int64(5 * time.Second)
	// lostWithin is the time in which an endpoint that loses two of the models it has just served is taken to be going away.
	lostWithin = int64(10 * time.Second)
)

// drain notes that the endpoint is going away.
func (e *Endpoint) drain(now, length int64) { e.drainingUntil.Store(now + length) }

// lost notes that the endpoint no longer holds a model, and takes it for draining if it has served that one and another lately which it
// no longer holds either: a server that stops loses all its models at once. One that names all it holds is asked how it is; it may have
// dropped two and keep others, which perhaps nobody else holds.
func (e *Endpoint) lost(model uint64, now int64) {
	if e.stands()&listed != 0 {
		return
	}
	m := e.models.get(model)
	if m == nil || now-m.used.Load() > lostWithin {
		return
	}
	other, when := e.lostModel.Swap(model), e.lostAt.Swap(now)
	if other != model && other != 0 && now-when < lostWithin {
		e.drain(now, lostFor)
	}
}

// Reconnected notes that the endpoint's connection is a new one: whatever was going away is gone, and
// whatever models were missing may be there. No model is expected to be as fast as it was before it has answered
// again: a server that has restarted has to load it.
func (e *Endpoint) Reconnected(now int64) {
	e.drainingUntil.Store(0)
	e.lostModel.Store(0)
	e.life.Add(1)
	e.connectedAt.Store(now)
}

// Unheard takes back all that was said of an endpoint: it has gone, or its connection is a new one.
func (g *Guard) Unheard(e *Endpoint) {
	e.facts.forget()
	e.reports.mu.Lock()
	defer e.reports.mu.Unlock()
	e.reports.forget()
	g.settleModels(e, 0) // nothing is ready
	e.stand(0, ^(ailing | ramping))
}

// Draining reports whether the endpoint said that it is going away.
func (e *Endpoint) Draining(now int64) bool { return now < e.drainingUntil.Load() }

const (
	// pressFor is how long an endpoint that refused a call for too much work counts as loaded, if it does not say for how long.
	pressFor = int64(500 * time.Millisecond)
	// maxPress bounds what it says.
	maxPress = int64(30 * time.Second)
	// pressure is what an endpoint that has too much work is taken to have in flight beside this client's calls: it is over any bound.
	pressure = overflowFloor
)

// press notes that the endpoint has too much to do, for the given time; 0 or less means that it does not say.
func (e *Endpoint) press(now int64, pushback time.Duration) {
	d := min(int64(pushback), maxPress)
	if d <= 0 {
		d = pressFor
	}
	e.pressedUntil.Store(now + d)
}

// loadAt returns the cost in flight on the endpoint as far as it is known: this client's calls, and what a server that is overloaded has
// beside them.
func (e *Endpoint) loadAt(now int64) int64 {
	_, load := e.working()
	if now < e.pressedUntil.Load() {
		load += pressure
	}
	return load
}

// Breaker returns the endpoint's breaker.
func (e *Endpoint) Breaker() *breaker.Breaker { return e.breaker }

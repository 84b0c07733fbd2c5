package picker

import (
	"math"
	"slices"
	"time"

	"github.com/mlbalancer/mlbalancer/breaker"
	"github.com/mlbalancer/mlbalancer/health"
)

func init() {
	Register(func() Options { return &AffinityOptions{ColdLoad: breaker.Duration(10 * time.Second)} })
}

// AffinityOptions configures the strategy "affinity": a call goes to an endpoint that holds its model, and all is compared in the time until the
// call is expected to be answered. Endpoints say what they hold and how busy they are. Of those that hold the model a few are looked at, and
// the call is sent at once where it need not wait; else all are. It goes where the model has to be loaded if that takes less time, what the
// load would push out included, or when by a throw of dice, whose chance is what the call loses by waiting over what a load costs, the model is due
// another copy: so any number of clients grow a hot model's copies together without talking, and no slower or faster for being many. Copies that are
// no longer needed are left alone until the server evicts them. The order in which endpoints without the model are considered is that of a
// ring, the same in all clients.
//
// Where no more than half of the endpoints say what they hold, the strategy is "ring" with its options.
type AffinityOptions struct {
	// MaxReplicas is how many endpoints a model is given at most, from 0 to 1000; 0, the default, is no bound. Copies that servers have made by
	// themselves are used however many there are.
	MaxReplicas int `json:"maxReplicas,omitempty"`
	// ColdLoad is how long a load takes on a server that does not say, from 1 ms to an hour; default 10 s.
	ColdLoad breaker.Duration `json:"coldLoad,omitempty"`
	// EndpointConcurrency is how many calls a server that does not say works on at a time, from 0 to 10,000; 0, the default, is 4.
	EndpointConcurrency int `json:"endpointConcurrency,omitempty"`

	ring *RingOptions // nil for the defaults
}

// WithRing returns the options with those of the ring that stands in where servers do not say what they hold, and that gives the order of endpoints
// where they do. Nil means the defaults of "ring".
func (o *AffinityOptions) WithRing(ring *RingOptions) *AffinityOptions {
	with := *o
	with.ring = ring
	return &with
}

// Strategy implements Options.
func (o *AffinityOptions) Strategy() string { return "affinity" }

// Validate implements Options.
func (o *AffinityOptions) Validate() error {
	switch {
	case o.MaxReplicas < 0 || o.MaxReplicas > 1000:
		return BadField("maxReplicas", o.MaxReplicas, "0 to 1000")
	case o.ColdLoad < breaker.Duration(time.Millisecond) || o.ColdLoad > breaker.Duration(time.Hour):
		return BadField("coldLoad", o.ColdLoad, "1ms to 1h")
	case o.EndpointConcurrency < 0 || o.EndpointConcurrency > 10_000:
		return BadField("endpointConcurrency", o.EndpointConcurrency, "0 to 10000")
	}
	return nil
}

// Build implements Options.
func (o *AffinityOptions) Build(b Build) Strategy {
	if prev, ok := b.Previous.(*affinity); ok {
		b.Previous = prev.ring
	}
	fallback := o.ring
	if fallback == nil {
		fallback = Defaults("ring").(*RingOptions)
	}
	s := &affinity{ring: fallback.Build(b).(*ring), rand: b.Rand, load: float64(o.ColdLoad), workers: float64(o.EndpointConcurrency)}
	s.replicas = o.MaxReplicas
	if s.replicas == 0 {
		s.replicas = math.MaxInt
	}
	if s.workers == 0 {
		s.workers = defaultWorkers
	}
	return s
}

const (
	// samples is how many of a model's holders are looked at first. One that need not wait is among them nearly always; two are too few where
	// few are idle. If a model has more than manyHolders these are all that is looked at, since clients that look at all and hear the same of them
	// would all choose the same one.
	samples, manyHolders = 3, 8
	// soon is how many service times a call may be expected to take to be sent without looking any further.
	soon = 1.25
	// coldSet is how many endpoints without the model are considered.
	coldSet = 8
	// rankCost is what it costs, in loads, to load a model on an endpoint further along the ring: enough for clients to agree that have not heard
	// of one another's loads yet (cold starts, tight-85), and not so much that a lane which is busy is waited for (lanes-full, over-30).
	rankCost = 0.3
	// secondLoad is how many loads sooner a call must be answered to load a model that is being loaded elsewhere, and passLoad the same for one that is
	// in memory: estimates are not exact, and what a load pushes out has to be loaded again, and pushes out something else.
	secondLoad, passLoad = 2, 0.5
	// growthFree and growthFull say how many times its cost a load must save until a copy is made, where there is free memory and where not.
	growthFree, growthFull = 2, 20
	// growthAge is how much slower copies are made the older what is known is, in loads per load: others may have made one.
	growthAge = 4
	// rentRate and maxRent bound the credit of models where memory is full: what it grows by in a time, and what it grows to in loads.
	rentRate, maxRent = 30, 30
)

// affinity is the strategy of AffinityOptions for one membership.
type affinity struct {
	*ring
	rand     func() uint64
	replicas int
	load     float64
	workers  float64
}

// candidate is an endpoint that is considered for a call.
type candidate struct {
	index int
	e     *Endpoint
	model *Model // on it, if it is known to hold it
	state state
	in    float64 // nanoseconds until it is expected to have answered
	at    int     // among the model's holders
	ready bool    // it holds the model now
}

// Pick implements Strategy.
func (s *affinity) Pick(t *Table, q *Query) Choice {
	g := t.plan.Guard
	if g == nil || !g.residency.informed.Load() || q.anywhere {
		return s.ring.Pick(t, q)
	}
	p := g.residency.get(q.Key)
	var x estimator // field by field: a literal is put together elsewhere and copied
	x.t, x.now, x.workers, x.load, x.others = t, q.Now, s.workers, s.load, t.othersPerEndpoint(q.Now)
	x.service, x.mean = g.services(t, p, q)
	x.fading = 1 / (ageOfServices * x.service)
	x.plain = len(q.Avoid)+q.nPassed == 0 && x.now >= g.absent.last.Load()
	var room candidates
	best, loading := s.warmest(&x, g, p, q, &room)
	if best != nil && best.ready && best.in <= soon*x.service {
		return s.session(&x, g, p, q, best)
	}
	x.chain = g.residency.chain()
	c, ok := s.coldest(&x, g, q)
	switch {
	case !ok && best == nil:
		return t.refuse()
	case best == nil:
		c.opened(&x, g, q)
		return c.choice(&x, Cold, p, q)
	case !ok || p != nil && len(p.held()) >= s.replicas: // there is no place for another copy
	case best.in > c.in+c.hesitation(loading):
		c.opened(&x, g, q)
		return c.choice(&x, Cold, p, q)
	case !loading && s.grows(&x, p, best, &c):
		c.opened(&x, g, q)
		return c.choice(&x, Grown, p, q)
	}
	return s.session(&x, g, p, q, best)
}

// choice is the decision for a candidate.
func (c *candidate) choice(x *estimator, r Reason, p *placement, q *Query) Choice {
	if p != nil {
		p.demand.picks.Add(1)
	}
	o := &q.Outlook
	o.model, o.placement = c.model, p
	if c.ready {
		// Not c.in: what speaks for a probe, and against one that is new, is nothing to measure it by.
		o.Wait, o.Expect = int64(x.wait(&c.state)), int64(x.warm(&c.state))
		if c.e.facts.tellsCalls() { // what others may have sent there since is no fault of the endpoint
			o.Expect += int64(c.state.age)
		}
	}
	return Choice{Index: c.index, Reason: r}
}

// hesitation returns how much sooner than on the best endpoint that holds the model a load must have the call answered, in nanoseconds.
func (c *cold) hesitation(loading bool) float64 {
	if loading {
		return secondLoad * (c.load + c.cost*c.chain)
	}
	return passLoad * (c.load + c.cost)
}

// cold is a candidate that would have to load the model.
type cold struct {
	candidate
	load, cost float64 // the time of the load, and what it costs others, in nanoseconds
	chain      float64 // how many times that a load costs which nobody waits for
	resident   float64 // the least time in which one of those that were considered would answer if it held the model
}

// opened notes that the call has a model loaded, where it is known that it is not there.
func (c *cold) opened(x *estimator, g *Guard, q *Query) {
	c.e.loads.add(c.e, x.now)
	g.openings.add(q.Key, c.e, x.now, c.in)
}

// maxWarm is how many holders of a model are looked at, at most.
const maxWarm = 64

// warmest returns the endpoint, of those that hold the model or load it, that is expected to answer first, nil if there is none, and whether one is
// loading the model. room is where it has room for candidates.
func (s *affinity) warmest(x *estimator, g *Guard, p *placement, q *Query, room *candidates) (best *candidate, loading bool) {
	if p != nil {
		if hs := p.held(); len(hs) > 0 {
			best, loading = s.warm(x, g, hs, q, room)
		}
	}
	if x.now >= g.openings.until.Load() {
		return best, loading
	}
	for n := range openingProbe {
		o, e := g.openings.of(q.Key, n, x.now)
		if e == nil {
			continue
		}
		loading = true
		i := int(e.slot.Load())
		if !x.t.seats(i, e) || !x.t.usable(uint32(i), q) {
			continue
		}
		c := candidate{index: i, e: e}
		x.of(e, &c.state)
		c.in = float64(max(0, o.readyAt.Load()-x.now)) + x.behind(e) + x.service*c.state.slow
		if best == nil {
			best = &room[0]
			*best = c
		} else if c.in < best.in {
			*best = c
		}
	}
	return best, loading
}

// warm is warmest among the holders. All are looked at in turn, from one that is drawn.
func (s *affinity) warm(x *estimator, g *Guard, hs []holder, q *Query, room *candidates) (best *candidate, loading bool) {
	at, left, n := int(below(s.rand(), len(hs))), min(len(hs), maxWarm), 0
	for ; left > 0 && n < samples; left-- {
		c := &room[n]
		if s.consider(x, g, &hs[at], q, c) {
			c.at = at
			n++
			loading = loading || !c.ready
		}
		if at++; at == len(hs) {
			at = 0
		}
	}
	if n == 0 {
		return nil, loading
	}
	best = soonest(room[:n])
	if n == samples && best.ready && best.in <= soon*x.service {
		return best, loading
	}
	return s.warmOfAll(x, g, q, room, look{hs, at, left, n, best, loading})
}

// spread draws among the candidates that are as good as the best for all that is known, and returns which of the holders it is, -1 if it is the best: how busy
// others keep an endpoint is the less known the older its server's word is, the busier it is and the less of it is this client's doing.
func (s *affinity) spread(cs []seen, best *candidate) int {
	st := &best.state
	share := (st.own + 1) / (st.calls + 1)
	band := best.in + min(st.age, maxBand)*min(1, st.calls/st.workers)*max(0, 1-share)
	n := 0
	for i := range cs {
		if cs[i].ready && cs[i].in <= band {
			cs[n] = cs[i]
			n++
		}
	}
	if n == 0 { // those for which there was room are all loading it
		return -1
	}
	return cs[below(s.rand(), n)].at
}

// maxBand bounds the difference that counts as none.
const maxBand = 2 * float64(time.Second)

// consider looks at an endpoint that holds the model or loads it, and reports whether it may be sent the call.
func (s *affinity) consider(x *estimator, g *Guard, h *holder, q *Query, c *candidate) bool {
	e := h.endpoint
	i, sound, ready := int(e.slot.Load()), e.sound(q.Now), h.model.State() == health.ModelReady
	if !x.t.takes(i, e) || !(sound && ready && x.plain) && !g.admitsHolder(e, h.model, q, sound) {
		return false
	}
	c.index, c.e, c.model, c.ready = i, e, h.model, ready
	x.of(e, &c.state)
	c.in = x.warm(&c.state)
	if !sound {
		switch ramp := e.ramp(q.Now); {
		case ramp >= overdue:
			c.in = 0
		case ramp < 1 && !ramped(e, q):
			c.in += x.load // for those who have no other
		}
	}
	if !ready {
		c.in += float64(max(0, h.model.readyAt.Load()-q.Now)) + x.behind(e)
	}
	return true
}

// coldest returns the endpoint, of the first along the ring that do not hold the model, that is expected to answer first. A model that many hold
// would be a long walk; it goes on from points of the ring that are drawn by its hash, the same in all clients.
func (s *affinity) coldest(x *estimator, g *Guard, q *Query) (best cold, ok bool) {
	if len(s.hashes) == 0 {
		return best, false
	}
	var seen [maxCold]uint32
	n, rank := 0, 0
	best.resident = math.Inf(1)
	key := q.Key
	at := s.home(key)
	for step := range maxColdSteps {
		if rank == coldSet || n == s.owned || n == len(seen) {
			break
		}
		if step >= walked {
			key += 0x9e3779b97f4a7c15
			at = s.home(key)
		}
		i := s.owners[at]
		if at++; at == len(s.hashes) {
			at = 0
		}
		if slices.Contains(seen[:n], i) {
			continue
		}
		seen[n] = i
		n++
		e := x.t.members[i].Endpoint
		if g.holds(e, q.Key, x.now) || !x.t.usable(i, q) {
			continue
		}
		c := s.empty(x, e, int(i), rank, q)
		c.resident = min(best.resident, c.resident)
		if !ok || c.in < best.in {
			best, ok = c, true
		}
		best.resident = c.resident
		rank++
	}
	return best, ok
}

const (
	// walked is how many points of the ring a walk passes before it goes on elsewhere, and maxColdSteps how many in all, of maxCold endpoints.
	walked, maxColdSteps, maxCold = 48, 160, 96
)

// empty looks at an endpoint that would have to load the model.
func (s *affinity) empty(x *estimator, e *Endpoint, index, rank int, q *Query) cold {
	c := cold{candidate: candidate{index: index, e: e}}
	x.of(e, &c.state)
	wait, work := x.wait(&c.state), x.service*c.state.slow
	free, load := x.laneFree(e)
	c.load, c.resident = load, wait+work
	c.cost, c.chain = x.eviction(e, load, free)
	c.in = max(free+load*c.state.slow, wait) + work + c.cost + float64(rank)*rankCost*load + e.facts.busy()*load
	if !ramped(e, q) {
		c.in += load
	}
	return c
}

// grows throws the dice for another copy of a model, which is to be on c.
func (s *affinity) grows(x *estimator, p *placement, best *candidate, c *cold) bool {
	regret := (best.in - c.resident) * best.e.lasting()
	if regret <= 0 || p == nil {
		return false
	}
	share := (best.state.own + 1) / (best.state.calls + 1)
	theta := float64(growthFree)
	if c.cost > 0 {
		theta = growthFull
		regret = p.credit.pay(x.now, regret, rentRate*c.cost/c.load*share, maxRent*c.load*share)
	}
	price := theta * (c.load + c.cost*c.chain) * (1 + growthAge*best.state.age/c.load)
	return regret > 0 && unit(s.rand()) < regret/price
}

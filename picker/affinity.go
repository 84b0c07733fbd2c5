package picker

import (
	"math"
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
// Where servers do not say what they hold, or too seldom, the strategy is "ring" with its defaults.
type AffinityOptions struct {
	// MaxReplicas is how many endpoints a model is given at most, from 0 to 1000; 0, the default, is no bound. Copies that servers have made by
	// themselves are used however many there are.
	MaxReplicas int `json:"maxReplicas,omitempty"`
	// ColdLoad is how long a load takes on a server that does not say, from 1 ms to an hour; default 10 s.
	ColdLoad breaker.Duration `json:"coldLoad,omitempty"`
	// EndpointConcurrency is how many calls a server that does not say works on at a time, from 0 to 10,000; 0, the default, is 4.
	EndpointConcurrency int `json:"endpointConcurrency,omitempty"`
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
	s := &affinity{ring: Defaults("ring").Build(b).(*ring), rand: b.Rand, load: float64(o.ColdLoad), workers: float64(o.EndpointConcurrency)}
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
	// few are idle.
	samples = 3
	// soon is how many service times a call may be expected to take to be sent without looking any further.
	soon = 1.25
	// coldSet is how many endpoints without the model are considered.
	coldSet = 8
	// rankCost is what it costs, in loads, to load a model on an endpoint further along the ring: enough to have clients agree that are
	// otherwise indifferent.
	rankCost = 0.02
	// growthFree and growthFull say how many times its cost a load must save until a copy is made, where there is free memory and where not.
	growthFree, growthFull = 1, 10
	// rentRate and maxRent bound the credit of models where memory is full.
	rentRate = 30
	maxRent  = 150 * float64(time.Second)
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
	state state
	in    float64 // nanoseconds until it is expected to have answered
	ready bool    // it holds the model now
}

// Pick implements Strategy.
func (s *affinity) Pick(t *Table, q *Query) Choice {
	g := t.plan.Guard
	if g == nil || !g.residency.informed.Load() || q.anywhere {
		return s.ring.Pick(t, q)
	}
	p := g.residency.get(q.Key)
	x := estimator{t: t, now: q.Now, workers: s.workers, load: s.load, others: t.othersPerEndpoint(q.Now)}
	x.service, x.mean = g.services(p, q)
	var best candidate
	found, loading := false, false
	if p != nil {
		best, found, loading = s.warmest(&x, g, p, q)
	}
	if found && best.in <= soon*x.service {
		return best.choice(&x, Warm)
	}
	c, pen, regret, ok := s.coldest(&x, g, p, q, best.in)
	switch {
	case !ok && !found:
		return t.refuse()
	case !ok:
		return best.choice(&x, Warm)
	case !found || best.in > c.in:
		c.opened(&x, p)
		return c.choice(&x, Cold)
	case !loading && s.grows(&x, p, &best, c, pen, regret):
		c.opened(&x, p)
		return c.choice(&x, Grown)
	}
	return best.choice(&x, Warm)
}

// choice is the decision for a candidate.
func (c *candidate) choice(x *estimator, r Reason) Choice {
	d := Choice{Index: c.index, Reason: r}
	if c.ready && r == Warm {
		d.Wait, d.Expect = int64(x.wait(&c.state)), int64(c.in)
	}
	return d
}

// opened notes that the call has a model loaded, where it is known that it is not there.
func (c *candidate) opened(x *estimator, p *placement) {
	c.e.loads.add(c.e, x.now)
	if p != nil {
		p.open(c.e, x.now, c.in)
	}
}

// maxWarm is how many holders of a model are looked at, at most.
const maxWarm = 64

// warmest returns the endpoint, of those that hold the model or load it, that is expected to answer first, and whether one is loading it.
func (s *affinity) warmest(x *estimator, g *Guard, p *placement, q *Query) (best candidate, found, loading bool) {
	hs := *p.holders.Load()
	random := s.rand()
	n := len(hs)
	if n > 0 {
		first := int(below(random, n))
		random <<= 32
		step := 1
		if n > samples {
			step += int(below(random, n-1)) // any but 0
		}
		looked := 0
		for k, at := 0, first; k < n && looked < maxWarm; k++ {
			// The first few are drawn, and then come all in turn: a few of them twice, which does no harm.
			h := &hs[at]
			if k < samples {
				if at += step; at >= n {
					at -= n
				}
			} else if at++; at >= n {
				at = 0
			}
			c, ok := s.consider(x, g, h, q)
			if !ok {
				continue
			}
			looked++
			loading = loading || !c.ready
			if !found || c.in < best.in {
				best, found = c, true
			}
			if k >= samples-1 && best.in <= soon*x.service {
				break
			}
		}
	}
	for i := range p.opened {
		o := &p.opened[i]
		e := o.endpoint.Load()
		if e == nil || !o.valid(e, x.now) {
			continue
		}
		loading = true
		i := int(e.slot.Load())
		if !x.t.seats(i, e) || !x.t.usable(uint32(i), q) {
			continue
		}
		c := candidate{index: i, e: e, state: x.of(e)}
		c.in = float64(max(0, o.readyAt.Load()-x.now)) + x.service*c.state.slow
		if !found || c.in < best.in {
			best, found = c, true
		}
	}
	return best, found, loading
}

// consider looks at an endpoint that holds the model or loads it, and reports whether it may be sent the call.
func (s *affinity) consider(x *estimator, g *Guard, h *holder, q *Query) (c candidate, ok bool) {
	e := h.endpoint
	i := int(e.slot.Load())
	if !x.t.seats(i, e) || x.t.status[i] != Ready || !(x.t.members[i].Weight > 0) || !g.admitsHolder(e, h.model, q) {
		return c, false
	}
	c = candidate{index: i, e: e, state: x.of(e), ready: true}
	c.in = x.warm(&c.state)
	switch ramp := e.ramp(q.Now); {
	case ramp >= overdue:
		c.in = 0
	case ramp < 1 && !ramped(e, q):
		c.in += x.load // for those who have no other
	}
	if h.model.State() != health.ModelReady {
		c.ready = false
		c.in += float64(max(0, h.model.readyAt.Load()-q.Now))
	}
	return c, true
}

// coldest returns the endpoint, of the first along the ring that do not hold the model, that is expected to answer first; what its load costs others; and
// how much sooner than in a given time one of them would answer if it held the model, negative if none would.
func (s *affinity) coldest(x *estimator, g *Guard, p *placement, q *Query, warm float64) (best candidate, pen, regret float64, ok bool) {
	if len(s.hashes) == 0 {
		return best, 0, 0, false
	}
	var seen [maxWarm + coldSet]uint32
	n, rank := 0, 0
	regret = math.Inf(-1)
	at := s.home(q.Key)
	for range min(maxSteps, len(s.hashes)) {
		if rank == coldSet || n == s.owned || n == len(seen) {
			break
		}
		i := s.owners[at]
		if at++; at == len(s.hashes) {
			at = 0
		}
		if containsIndex(seen[:n], i) {
			continue
		}
		seen[n] = i
		n++
		e := x.t.members[i].Endpoint
		if p.holds(e) || !x.t.usable(i, q) {
			continue
		}
		c := candidate{index: int(i), e: e, state: x.of(e)}
		wait := x.wait(&c.state)
		free, load := x.laneFree(e)
		cost := x.evictionCost(g, e, load)
		regret = max(regret, warm-wait-x.service*c.state.slow)
		c.in = max(free+load*c.state.slow, wait) + x.service*c.state.slow + cost + float64(rank)*rankCost*load + e.facts.busy()*load
		if !ramped(e, q) {
			c.in += load
		}
		rank++
		if !ok || c.in < best.in {
			best, pen, ok = c, cost, true
		}
	}
	return best, pen, regret, ok
}

func containsIndex(seen []uint32, i uint32) bool {
	for _, s := range seen {
		if s == i {
			return true
		}
	}
	return false
}

// grows throws the dice for another copy of a model, which is to be on c.
func (s *affinity) grows(x *estimator, p *placement, best *candidate, c candidate, pen, regret float64) bool {
	if regret <= 0 || p == nil || len(*p.holders.Load()) >= s.replicas {
		return false
	}
	_, load := x.laneFree(c.e)
	share := (best.state.own + 1) / (best.state.calls + 1)
	theta := float64(growthFree)
	if pen > 0 {
		theta = growthFull
		regret = p.credit.pay(x.now, regret, rentRate*pen/load*share, maxRent*share)
	}
	return regret > 0 && unit(s.rand()) < regret/(theta*(load+pen))
}

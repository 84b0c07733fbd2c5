package sim

import (
	"math"
	"math/rand/v2"
	"sort"
	"time"
)

// catalog is the models of a scenario: how much of the traffic each has, and how much work its calls are.
type catalog struct {
	share []float64       // of the calls, by model; the sum is 1
	upTo  []float64       // sums of shares
	mean  []time.Duration // work of a call
}

// newCatalog draws the models of a run. Means are scaled so that the mean work over all calls is that of the scenario.
func newCatalog(sc *Scenario, seed uint64) *catalog {
	c := &catalog{share: sc.shares()}
	n := len(c.share)
	c.upTo, c.mean = make([]float64, n), make([]time.Duration, n)
	r := source(seed, forModels, 0)
	factor, total, sum := make([]float64, n), 0.0, 0.0
	for m := range factor {
		factor[m] = math.Exp(modelSigma * r.NormFloat64())
		total += c.share[m] * factor[m]
		sum += c.share[m]
		c.upTo[m] = sum
	}
	for m := range factor {
		c.mean[m] = time.Duration(float64(sc.Service) * factor[m] / total)
	}
	return c
}

// zipf returns the shares of n models whose popularity falls with the power s of their rank.
func zipf(n int, s float64) []float64 {
	share, sum := make([]float64, n), 0.0
	for i := range share {
		share[i] = math.Pow(float64(i+1), -s)
		sum += share[i]
	}
	for i := range share {
		share[i] /= sum
	}
	return share
}

// draw returns a model.
func (c *catalog) draw(r *rand.Rand) int32 {
	return int32(min(sort.SearchFloat64s(c.upTo, r.Float64()), len(c.upTo)-1))
}

// arrivals are the calls of a run, one after the other.
type arrivals struct {
	sc             *Scenario
	catalog        *catalog
	calls, clients *rand.Rand
	at             time.Duration // of the next call
	row            int           // of the trace, counted over all passes
	pass           time.Duration // how long one pass of the trace takes
	phase          time.Duration // of the swing
	rate           float64       // calls per second, where there is no trace
}

func newArrivals(sc *Scenario, c *catalog, seed uint64) *arrivals {
	a := &arrivals{sc: sc, catalog: c, calls: source(seed, forCalls, 0), clients: source(seed, forClients, 0)}
	a.rate = sc.Rho * float64(sc.Servers*sc.Workers) / sc.Service.Seconds()
	a.phase = time.Duration(source(seed, forTraffic, 0).Float64() * float64(sc.SwingPeriod))
	if sc.Trace != nil {
		a.pass = time.Duration(float64(len(sc.Trace.Rows)) / a.rate * 1e9)
	}
	a.advance()
	return a
}

// advance moves on to the next call's time.
func (a *arrivals) advance() {
	if t := a.sc.Trace; t != nil {
		n := len(t.Rows)
		a.at = time.Duration(a.row/n)*a.pass + time.Duration(t.Rows[a.row%n].At*float64(a.pass))
		a.row++
		return
	}
	a.at += time.Duration(a.calls.ExpFloat64() / (a.rate * a.swing()) * 1e9)
}

// swing returns how many times its mean the rate of arrivals is now.
func (a *arrivals) swing() float64 {
	if p := a.sc.SwingPeriod; p > 0 && (a.at+a.phase)%p < p/2 {
		return 1 - a.sc.Swing
	}
	return 1 + a.sc.Swing
}

// urgencyShares are the shares of the calls by urgency, summed up.
var urgencyShares = [...]float64{Sheddable: .2, Normal: .8, Critical: 1}

// fill makes c the call that arrives at a.at, and moves on to the next.
func (a *arrivals) fill(c *Call) {
	c.Start, c.Sent = a.at, a.at
	c.Deadline = a.at + a.sc.Deadline
	switch {
	case a.sc.Trace != nil:
		c.Model = a.sc.Trace.Rows[(a.row-1)%len(a.sc.Trace.Rows)].Model
	case a.sc.Flash > 0 && a.at >= a.sc.From && a.calls.Float64() < a.sc.Flash:
		c.Model = int32(len(a.catalog.share) - 1)
	default:
		c.Model = a.catalog.draw(a.calls)
	}
	c.Work = lognormal(a.calls, a.catalog.mean[c.Model], workCV)
	c.Client = int32(a.clients.IntN(a.sc.Clients))
	u := a.clients.Float64()
	for c.Urgency = Sheddable; u >= urgencyShares[c.Urgency]; c.Urgency++ {
	}
	a.advance()
}

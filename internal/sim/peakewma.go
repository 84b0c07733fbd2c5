package sim

import (
	"math"
	"time"
)

// ewmaMemory is the time constant of Finagle's and Linkerd's peak EWMA by default.
const ewmaMemory = 10 * time.Second

// peakEWMA is the baseline peak_ewma.
type peakEWMA struct {
	p2c
	latency []ewma // by client and server
}

// ewma is one client's estimate of one server's latency in seconds.
type ewma struct {
	value float64
	at    time.Duration
}

func newPeakEWMA(f *Fleet) Policy {
	return &peakEWMA{p2c: p2c{f: f, members: f.members}, latency: make([]ewma, f.Clients*len(f.servers))}
}

func (p *peakEWMA) of(client, server int32) *ewma {
	return &p.latency[int(client)*len(p.f.servers)+int(server)]
}

// Place implements Policy.
func (p *peakEWMA) Place(now time.Duration, c *Call) int {
	a, b := p.f.two(p.members)
	if p.cost(now, c.Client, b) < p.cost(now, c.Client, a) {
		return int(b)
	}
	return int(a)
}

// cost is the latency estimate, which falls while nothing is observed, times the calls in flight with the new one.
func (p *peakEWMA) cost(now time.Duration, client, server int32) float64 {
	e := p.of(client, server)
	fade := math.Exp(-(now - e.at).Seconds() / ewmaMemory.Seconds())
	return (e.value*fade + 1e-6) * float64(p.f.inFlight(client)[server]+1)
}

// Done implements Policy.
func (p *peakEWMA) Done(now time.Duration, c *Call, _ Outcome) {
	e, took := p.of(c.Client, c.Server), (now - c.Sent).Seconds()
	if w := math.Exp(-(now - e.at).Seconds() / ewmaMemory.Seconds()); took > e.value {
		e.value = took
	} else {
		e.value = e.value*w + took*(1-w)
	}
	e.at = now
}

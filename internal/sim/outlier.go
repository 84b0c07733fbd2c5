package sim

import (
	"math"
	"time"
)

// outlierConfig is a configuration of gRPC's outlier detection (gRFC A50): what a sweep every interval ejects, and for how long.
type outlierConfig struct {
	interval, base, maxEjection time.Duration
	maxPercent                  int
	stdevFactor                 float64 // of the success rate; gRPC's unit is a thousandth
	successHosts, successVolume int
	failurePercent              float64
	failureHosts, failureVolume int
}

var (
	odDefault = outlierConfig{
		interval: 10 * time.Second, base: 30 * time.Second, maxEjection: 300 * time.Second, maxPercent: 10,
		stdevFactor: 1.9, successHosts: 5, successVolume: 100, failurePercent: 85, failureHosts: 5, failureVolume: 50,
	}
	odTuned = outlierConfig{
		interval: time.Second, base: 5 * time.Second, maxEjection: 300 * time.Second, maxPercent: 50,
		stdevFactor: 1.9, successHosts: 3, successVolume: 5, failurePercent: 50, failureHosts: 3, failureVolume: 5,
	}
)

// over returns what builds a policy that another one's kind chooses for, among the servers that are not ejected.
func (c outlierConfig) over(build func(*Fleet) Policy) func(*Fleet) Policy {
	return func(f *Fleet) Policy {
		o := &outlierDetection{config: c, f: f, clients: make([]outlierClient, f.Clients)}
		for i := range o.clients {
			o.clients[i] = outlierClient{policy: build(f).(chooser), hosts: make([]outlierHost, len(f.servers))}
		}
		return o
	}
}

// outlierDetection ejects servers that fail more of a client's calls than the others. Each client has detection, and a policy,
// of its own.
type outlierDetection struct {
	quiet
	config  outlierConfig
	f       *Fleet
	clients []outlierClient
}

type outlierClient struct {
	policy chooser
	hosts  []outlierHost
}

type outlierHost struct {
	ok, failed int
	ejected    bool
	since      time.Duration
	multiplier int
}

// Place implements Policy.
func (o *outlierDetection) Place(now time.Duration, c *Call) int {
	return o.clients[c.Client].policy.Place(now, c)
}

// Done implements Policy.
func (o *outlierDetection) Done(now time.Duration, c *Call, out Outcome) {
	client := &o.clients[c.Client]
	client.policy.Done(now, c, out)
	if out == OutcomeSuccess {
		client.hosts[c.Server].ok++
	} else {
		client.hosts[c.Server].failed++
	}
}

// Changed implements Policy.
func (o *outlierDetection) Changed(now time.Duration) {
	for i := range o.clients {
		o.clients[i].policy.Changed(now)
		o.restrict(&o.clients[i])
	}
}

// Tick implements Policy: one sweep.
func (o *outlierDetection) Tick(now time.Duration) {
	for i := range o.clients {
		c := &o.clients[i]
		o.bySuccessRate(c, now)
		o.byFailures(c, now)
		for j := range c.hosts {
			h := &c.hosts[j]
			h.ok, h.failed = 0, 0
			switch {
			case !h.ejected:
				h.multiplier = max(0, h.multiplier-1)
			case now-h.since > min(o.config.base*time.Duration(h.multiplier), max(o.config.base, o.config.maxEjection)):
				h.ejected = false
			}
		}
		o.restrict(c)
	}
}

func (o *outlierDetection) bySuccessRate(c *outlierClient, now time.Duration) {
	var rates []float64
	var who []int32
	for _, i := range o.f.members {
		if h := &c.hosts[i]; h.ok+h.failed >= o.config.successVolume {
			rates = append(rates, float64(h.ok)/float64(h.ok+h.failed))
			who = append(who, i)
		}
	}
	if len(rates) < o.config.successHosts {
		return
	}
	mean, square := 0.0, 0.0
	for _, r := range rates {
		mean += r / float64(len(rates))
	}
	for _, r := range rates {
		square += (r - mean) * (r - mean) / float64(len(rates))
	}
	for k, r := range rates {
		if r < mean-o.config.stdevFactor*math.Sqrt(square) {
			o.eject(c, who[k], now)
		}
	}
}

func (o *outlierDetection) byFailures(c *outlierClient, now time.Duration) {
	var who []int32
	for _, i := range o.f.members {
		if h := &c.hosts[i]; h.ok+h.failed >= o.config.failureVolume {
			who = append(who, i)
		}
	}
	if len(who) < o.config.failureHosts {
		return
	}
	for _, i := range who {
		if h := &c.hosts[i]; 100*float64(h.failed)/float64(h.ok+h.failed) > o.config.failurePercent {
			o.eject(c, i, now)
		}
	}
}

// eject ejects a server unless as many are as may be.
func (o *outlierDetection) eject(c *outlierClient, server int32, now time.Duration) {
	ejected := 0
	for _, i := range o.f.members {
		if c.hosts[i].ejected {
			ejected++
		}
	}
	if h := &c.hosts[server]; !h.ejected && 100*ejected < o.config.maxPercent*len(o.f.members) {
		h.ejected, h.since = true, now
		h.multiplier++
	}
}

func (o *outlierDetection) restrict(c *outlierClient) {
	var left []int32
	for _, i := range o.f.members {
		if !c.hosts[i].ejected {
			left = append(left, i)
		}
	}
	if len(left) == 0 {
		left = o.f.members
	}
	c.policy.restrict(left)
}

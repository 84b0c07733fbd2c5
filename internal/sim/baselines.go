package sim

import "time"

// baselines are what others do.
var baselines = []Kind{
	{Name: "round_robin", Role: Baseline, About: "servers take turns, for each client", build: newRoundRobin},
	{Name: "p2c", Role: Baseline, About: "of two random servers, the one with fewer own calls in flight", build: newP2C},
	{Name: "weighted_round_robin", Role: Baseline, About: "gRPC's: turns by reported calls per second over utilization",
		hears: true, ticks: wrrEvery, build: newWeightedRoundRobin},
	{Name: "peak_ewma", Role: Baseline, About: "of two random servers, that with the lower peak EWMA x own calls in flight",
		build: newPeakEWMA},
	{Name: "ring_hash", Role: Baseline, About: "consistent hashing of the model, 4096 points", build: newRingHash},
	{Name: "ring_k3", Role: Baseline, About: "of two random ones of a model's first three on the ring, the one with fewer own calls",
		build: newRingK3},
	{Name: "bounded", Role: Baseline, About: "consistent hashing with loads bounded to 1.25 x the mean, by own counts",
		build: newBounded},
	{Name: "bounded_global", Role: Baseline, About: "the same, by counts that all clients share", build: newBoundedGlobal},
	{Name: "prequal", Role: Baseline, About: "pool of 16 probes, 3 probes a call, hot above the .84 quantile", build: newPrequal},
	{Name: "ring_hash+od", Role: Baseline, About: "ring_hash with gRPC's outlier detection at its defaults",
		ticks: odDefault.interval, build: odDefault.over(newRingHash)},
	{Name: "ring_hash+od_tuned", Role: Baseline, About: "ring_hash with outlier detection tuned to be quick",
		ticks: odTuned.interval, build: odTuned.over(newRingHash)},
	{Name: "p2c+od_tuned", Role: Baseline, About: "p2c with outlier detection tuned to be quick",
		ticks: odTuned.interval, build: odTuned.over(newP2C)},
}

// chooser is a Policy that can do with some of the members: what outlier detection leaves of them.
type chooser interface {
	Policy
	// restrict says which servers may be chosen, ascending.
	restrict(members []int32)
}

// roundRobin is the baseline round_robin.
type roundRobin struct {
	quiet
	f       *Fleet
	members []int32
	turn    []int
}

func newRoundRobin(f *Fleet) Policy {
	r := &roundRobin{f: f, members: f.members, turn: make([]int, f.Clients)}
	for i := range r.turn {
		r.turn[i] = f.rand.IntN(len(f.servers))
	}
	return r
}

// Place implements Policy.
func (r *roundRobin) Place(_ time.Duration, c *Call) int {
	r.turn[c.Client]++
	return int(r.members[r.turn[c.Client]%len(r.members)])
}

// Changed implements Policy.
func (r *roundRobin) Changed(time.Duration) { r.members = r.f.members }

// p2c is the baseline p2c.
type p2c struct {
	quiet
	f       *Fleet
	members []int32
}

func newP2C(f *Fleet) Policy { return &p2c{f: f, members: f.members} }

// Place implements Policy.
func (p *p2c) Place(_ time.Duration, c *Call) int {
	a, b := p.f.two(p.members)
	own := p.f.inFlight(c.Client)
	if own[b] < own[a] {
		return int(b)
	}
	return int(a)
}

// Changed implements Policy.
func (p *p2c) Changed(time.Duration) { p.members = p.f.members }

func (p *p2c) restrict(members []int32) { p.members = members }

// two draws two distinct ones of members, or the same one twice if there is but one.
func (f *Fleet) two(members []int32) (a, b int32) {
	n := len(members)
	if n == 1 {
		return members[0], members[0]
	}
	i, j := f.rand.IntN(n), f.rand.IntN(n-1)
	if j >= i {
		j++
	}
	return members[i], members[j]
}

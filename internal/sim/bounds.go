package sim

import (
	"math"
	"time"
)

// bounds are what no client could do: they know the state of all servers as it is.
var bounds = []Kind{
	{Name: "all-resident", Role: Bound, About: "every model everywhere, exact routing: the queueing floor", build: newAllResident},
	{Name: "static-optimum", Role: Bound, About: "popularity known, models placed for good, exact routing", build: newStatic},
	{Name: "greedy-oracle", Role: Bound, About: "exact state known, least expected completion with loads", build: newGreedy},
}

// expectedWait is how long a call that joins the run queue of a server is expected to wait for a worker.
func (s *server) expectedWait() float64 { return s.waitBehind(s.active()) }

// waitBehind is how long a call is expected to wait for a worker behind a number of others.
func (s *server) waitBehind(n int) float64 {
	ahead := n + 1 - s.fleet.Workers
	if ahead <= 0 {
		return 0
	}
	return float64(ahead) / float64(s.fleet.Workers) * float64(s.fleet.Service) * s.slow
}

// completion is how long a call for a model that is resident on a server is expected to take there.
func (s *server) completion(m int32) float64 {
	return s.expectedWait() + float64(s.fleet.catalog.mean[m])*s.slow
}

// allResident is the bound all-resident.
type allResident struct {
	quiet
	f *Fleet
}

func newAllResident(f *Fleet) Policy {
	for _, s := range f.servers {
		s.slots = len(f.names)
		for m := range f.names {
			if s.models[m] == nil {
				s.place(int32(m), true)
			}
		}
	}
	return &allResident{f: f}
}

// Place implements Policy.
func (a *allResident) Place(_ time.Duration, c *Call) int { return a.f.soonest(a.f.members, c.Model) }

// soonest returns the one of some servers, all of which hold a model, where a call for it is expected to be done first. Those
// that are alike have equal chances.
func (f *Fleet) soonest(among []int32, m int32) int {
	best, least, alike := -1, math.Inf(1), 0
	for _, i := range among {
		s := f.servers[i]
		if s.hollow || s.broken == m {
			continue
		}
		t := s.completion(m) + float64(s.active())*1e-3
		switch {
		case t < least:
			best, least, alike = int(i), t, 1
		case t == least:
			if alike++; f.rand.IntN(alike) == 0 {
				best = int(i)
			}
		}
	}
	return best
}

// greedy is the bound greedy-oracle.
type greedy struct {
	quiet
	f *Fleet
}

func newGreedy(f *Fleet) Policy { return &greedy{f: f} }

// Place implements Policy.
func (g *greedy) Place(now time.Duration, c *Call) int {
	best, least, alike := -1, math.Inf(1), 0
	for _, i := range g.f.members {
		s := g.f.servers[i]
		if s.hollow || s.broken == c.Model {
			continue
		}
		t := g.completion(now, s, c.Model)
		switch {
		case t < least:
			best, least, alike = int(i), t, 1
		case t == least:
			if alike++; g.f.rand.IntN(alike) == 0 {
				best = int(i)
			}
		}
	}
	return best
}

// completion is how long a call for a model is expected to take on a server, its load included.
func (g *greedy) completion(now time.Duration, s *server, m int32) float64 {
	at := s.models[m]
	switch {
	case at != nil && at.state == resident:
		return s.completion(m)
	case at != nil && at.state == inLane:
		return max(float64(s.eta(now, at)), s.expectedWait()) + s.waitBehind(at.waiting.n) + float64(g.f.catalog.mean[m])*s.slow
	}
	t := float64(s.laneFree(now) + s.loadTime())
	if s.occupied+s.pending() >= s.slots {
		if v := s.victim(); v == nil || v.holds > 0 {
			t += float64(g.f.Service) * s.slow
		}
	}
	return max(t, s.expectedWait()) + float64(g.f.catalog.mean[m])*s.slow
}

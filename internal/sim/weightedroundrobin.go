package sim

import (
	"slices"
	"time"
)

// gRPC's weighted_round_robin (gRFC A58) by its defaults: weights are worked out anew every wrrEvery, and reports count once the
// first is wrrBlackout old.
const (
	wrrEvery    = time.Second
	wrrBlackout = 10 * time.Second
)

// weightedRoundRobin is the baseline weighted_round_robin.
type weightedRoundRobin struct {
	quiet
	f       *Fleet
	reports []wrrReport // by client and server
	turns   []wrrTurns  // by client
}

type wrrReport struct {
	heard  bool
	since  time.Duration
	weight float64
}

// wrrTurns gives each server its turns, evenly spread: the one whose next turn is due first is next.
type wrrTurns struct {
	interval, next []float64 // by server
	clock          float64
}

func newWeightedRoundRobin(f *Fleet) Policy {
	w := &weightedRoundRobin{f: f, reports: make([]wrrReport, f.Clients*len(f.servers)), turns: make([]wrrTurns, f.Clients)}
	for client := range w.turns {
		t := &w.turns[client]
		t.interval, t.next = make([]float64, len(f.servers)), make([]float64, len(f.servers))
		for i := range t.next {
			t.interval[i] = 1
			t.next[i] = f.rand.Float64()
		}
	}
	return w
}

// Place implements Policy.
func (w *weightedRoundRobin) Place(_ time.Duration, c *Call) int {
	t := &w.turns[c.Client]
	best := w.f.members[0]
	for _, i := range w.f.members[1:] {
		if t.next[i] < t.next[best] {
			best = i
		}
	}
	t.clock = t.next[best]
	t.next[best] += t.interval[best]
	return int(best)
}

// Report implements Policy.
func (w *weightedRoundRobin) Report(now time.Duration, client, server int, r *Report) {
	if r.Load.Utilization <= 0 || r.Rate <= 0 {
		return
	}
	e := &w.reports[client*len(w.f.servers)+server]
	if !e.heard {
		e.heard, e.since = true, now
	}
	e.weight = r.Rate / r.Load.Utilization
}

// Tick implements Policy.
func (w *weightedRoundRobin) Tick(now time.Duration) {
	n := len(w.f.servers)
	var known []float64
	for client := range w.turns {
		t, reports := &w.turns[client], w.reports[client*n:(client+1)*n]
		known = known[:0]
		for _, e := range reports {
			if e.heard && now-e.since >= wrrBlackout {
				known = append(known, e.weight)
			}
		}
		mean := 1.0
		if len(known) > 1 {
			slices.Sort(known)
			mean = 0
			for _, k := range known {
				mean += k / float64(len(known))
			}
		}
		for i, e := range reports {
			weight := mean
			if len(known) > 1 && e.heard && now-e.since >= wrrBlackout {
				weight = e.weight
			}
			interval := mean / weight
			t.next[i] = t.clock + (t.next[i]-t.clock)*interval/t.interval[i]
			t.interval[i] = interval
		}
	}
}

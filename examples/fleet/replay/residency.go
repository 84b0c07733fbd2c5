package replay

import (
	"time"

	"github.com/mlbalancer/mlbalancer/internal/fleet"
)

// residency returns the share of the measured part for which each model was in the memory of each server, from what happened
// there, in order of time.
func (r *run) residency(events []fleet.Event, servers int) [][]float64 {
	models := len(r.Schedule.Models)
	index := make(map[string]int, models)
	shares := make([][]float64, models)
	since := make([][]time.Duration, models) // when a model that is resident became so; -1 if it is not
	for m, name := range r.Schedule.Models {
		index[name] = m
		shares[m] = make([]float64, servers)
		since[m] = make([]time.Duration, servers)
		for s := range since[m] {
			since[m][s] = -1
		}
	}
	from, to := r.Schedule.From, r.Schedule.To
	gone := func(m, s int, at time.Duration) {
		if start := since[m][s]; start >= 0 {
			shares[m][s] += max(0, float64(min(at, to)-max(start, from))) / float64(to-from)
			since[m][s] = -1
		}
	}
	for _, e := range events {
		m, at := index[e.Model], max(0, r.clock.model(e.Time))
		switch e.Kind {
		case fleet.Loaded:
			since[m][e.Server] = at
		case fleet.Evicted:
			gone(m, e.Server, at)
		}
	}
	for m := range since {
		for s := range since[m] {
			gone(m, s, to)
		}
	}
	return shares
}

package main

import (
	"time"

	"github.com/mlbalancer/mlbalancer/internal/sim"
)

// metric is a figure that a goal is about.
type metric struct {
	name string
	of   func(f *sim.Figures) float64
}

var (
	p99    = metric{"p99 s", func(f *sim.Figures) float64 { return f.P99 }}
	loads  = metric{"cold loads", func(f *sim.Figures) float64 { return float64(f.Loads) }}
	failed = metric{"errors %", func(f *sim.Figures) float64 { return f.ErrorPercent }}
	// loads3 is for limits that were set for three seeds.
	loads3 = metric{"cold loads in 3 seeds", func(f *sim.Figures) float64 { return float64(3*f.Loads) / float64(f.Seeds) }}
)

// goal is something that our policy is to reach in a scenario: its metric is to be at most factor times that of another policy
// or, if there is none, at most limit.
type goal struct {
	name     string
	scenario string
	clients  int           // 0 for the scenario's
	every    time.Duration // period of the reports; 0 for the scenario's
	suffix   string        // of our policy's name
	metric   metric
	factor   float64
	against  string
	limit    float64
}

// goals returns the goals for routing quality.
func goals() []goal {
	var all []goal
	ratio := func(name, scenario string, clients int, m metric, factor float64, against string) {
		all = append(all, goal{name: name, scenario: scenario, clients: clients, metric: m, factor: factor, against: against})
	}
	limit := func(g goal) { all = append(all, g) }

	for _, id := range []string{"fits-70", "tight-70"} {
		ratio("R1", id, 0, loads, .02, "p2c")
	}
	for _, id := range []string{
		"fits-70", "fits-85", "tight-50", "tight-70", "tight-85",
		"over-30", "over-1000", "ring-friendly", "arena-70", "arena-over",
	} {
		ratio("R2", id, 0, loads, 1, "ring_hash")
		ratio("R2", id, 0, p99, .4, "ring_hash")
	}
	ratio("R2", "lanes-full", 0, p99, .4, "ring_hash")
	ratio("R3", "fits-70", 4, p99, 1.10, "all-resident")
	ratio("R3", "fits-70", 32, p99, 1.30, "all-resident")
	ratio("R3", "fits-70", 128, p99, 1.30, "all-resident")
	ratio("R4", "tight-50", 0, p99, 1.10, "static-optimum")
	ratio("R4", "tight-70", 0, p99, 1.35, "static-optimum")
	ratio("R4", "tight-85", 0, p99, 1.5, "static-optimum")
	ratio("R4", "arena-70", 0, p99, 1.2, "static-optimum")
	ratio("R5", "over-30", 0, p99, 1.1, "greedy-oracle")
	ratio("R5", "over-30", 0, loads, 1.05, "greedy-oracle")
	ratio("R5", "lanes-full", 0, p99, 1.3, "static-optimum")
	ratio("R7 without hedging", "gray-15", 0, p99, 1.1, "greedy-oracle")
	ratio("R7 without hedging", "gray-50-m32", 0, p99, 1.1, "greedy-oracle")
	ratio("R7 without hedging", "gray-resident", 0, p99, 1.05, "prequal")
	for _, id := range []string{"black-hole", "broken-model"} {
		limit(goal{name: "R8", scenario: id, suffix: "+retry", metric: failed, limit: .01})
		limit(goal{name: "R8", scenario: id, metric: failed, limit: .2})
	}
	limit(goal{name: "R9", scenario: "plus-10", metric: loads})
	ratio("R9", "minus-10", 0, loads, .3, "ring_hash")
	for _, id := range []string{"flash", "flash-50"} {
		limit(goal{name: "R9", scenario: id, metric: p99, limit: 7}) // 1.4 loads
		limit(goal{name: "R9", scenario: id, metric: failed})
	}
	for _, id := range []string{"resident-70", "resident-85"} {
		for _, m := range []int{4, 32} {
			ratio("R11", id, m, p99, 1.03, "prequal")
			ratio("R11", id, m, p99, 1, "p2c")
		}
	}
	const slow = 3 * time.Second
	limit(goal{name: "R11", scenario: "fits-70", clients: 32, every: slow, metric: p99, limit: 2})
	limit(goal{name: "R11", scenario: "tight-70", clients: 32, every: slow, metric: p99, limit: 5})
	limit(goal{name: "R11", scenario: "tight-70", clients: 32, every: slow, metric: loads3, limit: 100})
	return all
}

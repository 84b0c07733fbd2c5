package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Defaults returns a scenario in which nothing is special: 32 servers with 4 workers and memory for 4 models, 64 models whose
// popularity is Zipf's, and 4 clients.
func Defaults() Scenario {
	return Scenario{
		Servers: 32, Slots: 4, Workers: 4, Models: 64, Zipf: 1, Rho: 0.7, Swing: 0.25, SwingPeriod: 50 * time.Second,
		Service: 250 * time.Millisecond, Load: 5 * time.Second, Deadline: 30 * time.Second,
		Clients: 4, Reports: Reports{Mode: Stream, Every: 250 * time.Millisecond},
		From: 120 * time.Second, To: 420 * time.Second,
	}
}

// faulty returns the fleet in which things go wrong, and the window that is measured then.
func faulty() Scenario {
	s := Defaults()
	s.Servers, s.Slots, s.Models, s.Zipf = 16, 8, 64, 0.8
	s.From, s.To = 200*time.Second, 320*time.Second
	return s
}

// with returns a scenario that differs from another.
func with(s Scenario, id, about string, change func(s *Scenario)) Scenario {
	s.ID, s.About = id, about
	change(&s)
	return s
}

// Scenarios returns all scenarios.
func Scenarios() []Scenario {
	var all []Scenario
	add := func(base Scenario, id, about string, change func(s *Scenario)) {
		all = append(all, with(base, id, about, change))
	}

	for _, rho := range []float64{.70, .85} {
		add(Defaults(), fmt.Sprintf("fits-%.0f", 100*rho), "64 models, Zipf 1, on 32 servers with 4 slots: room for twice as many",
			func(s *Scenario) { s.Rho = rho })
	}
	for _, rho := range []float64{.50, .70, .85} {
		add(Defaults(), fmt.Sprintf("tight-%.0f", 100*rho), "100 models on 128 slots",
			func(s *Scenario) { s.Rho, s.Models = rho, 100 })
	}
	add(Defaults(), "over-30", "160 models, Zipf 1.4, on 128 slots, loads of 3 s",
		func(s *Scenario) { s.Rho, s.Models, s.Zipf, s.Load = .3, 160, 1.4, 3*time.Second })
	add(Defaults(), "over-1000", "1000 models, Zipf 1.4, on 128 slots, loads of 1 s",
		func(s *Scenario) { s.Rho, s.Models, s.Zipf, s.Load = .3, 1000, 1.4, time.Second })
	add(Defaults(), "ring-friendly", "48 models, Zipf 1, on 8 servers with 8 slots, little load",
		func(s *Scenario) { s.Servers, s.Slots, s.Rho, s.Models = 8, 8, .3, 48 })
	add(Defaults(), "lanes-full", "60 models, Zipf 1.2, on 8 servers with 5 slots: loads keep the lanes busy",
		func(s *Scenario) { s.Servers, s.Slots, s.Rho, s.Models, s.Zipf = 8, 5, .3, 60, 1.2 })
	add(Defaults(), "arena-70", "a trace, on 8 servers with 4 slots", func(s *Scenario) { s.Servers, s.NeedsTrace = 8, true })
	add(Defaults(), "arena-over", "a trace, on 8 servers with 3 slots",
		func(s *Scenario) { s.Servers, s.Slots, s.Rho, s.NeedsTrace = 8, 3, .3, true })
	for _, n := range []int{8, 100, 1000} {
		add(Defaults(), fmt.Sprintf("n-%d", n), "2 models a server",
			func(s *Scenario) { s.Servers, s.Models = n, 2*n })
	}
	for _, rho := range []float64{.70, .85} {
		add(Defaults(), fmt.Sprintf("resident-%.0f", 100*rho), "8 models, Zipf .8, resident on all of 32 servers",
			func(s *Scenario) { s.Slots, s.Rho, s.Models, s.Zipf, s.Everywhere = 8, rho, 8, .8, true })
	}

	slow := []Change{{Kind: Slow, Count: 1, Factor: 10}}
	add(faulty(), "gray-15", "one of 16 servers becomes 10 times as slow", func(s *Scenario) { s.Rho, s.Changes = .15, slow })
	add(faulty(), "gray-50-m32", "the same, with 32 clients", func(s *Scenario) { s.Rho, s.Clients, s.Changes = .5, 32, slow })
	add(faulty(), "gray-resident", "the same, 4 models resident everywhere",
		func(s *Scenario) { s.Models, s.Everywhere, s.Changes = 4, true, slow })
	add(faulty(), "black-hole", "one of 16 servers fails every call in 1 ms, 8 models resident everywhere",
		func(s *Scenario) { s.Models, s.Everywhere, s.Changes = 8, true, []Change{{Kind: BlackHole, Count: 1}} })
	add(faulty(), "broken-model", "the hottest model fails on the server that serves it most",
		func(s *Scenario) { s.Rho, s.Changes = .3, []Change{{Kind: BrokenModel, Count: 1}} })
	add(faulty(), "plus-10", "2 servers join 16 at once",
		func(s *Scenario) { s.Rho, s.Changes = .15, []Change{{Kind: Join, Count: 2}} })
	add(faulty(), "minus-10", "2 of 16 servers leave at once",
		func(s *Scenario) { s.Rho, s.Changes = .15, []Change{{Kind: Leave, Count: 2}} })
	for _, rho := range []float64{.3, .5} {
		id := "flash"
		if rho > .3 {
			id = fmt.Sprintf("flash-%.0f", 100*rho)
		}
		add(faulty(), id, "a tail model takes 30 % of the traffic", func(s *Scenario) { s.Rho, s.Flash = rho, .3 })
	}
	for _, rho := range []float64{1.2, 1.5} {
		add(faulty(), fmt.Sprintf("overload-%.0f", 100*rho), "more work than the fleet can do; answers within 2.5 s are of use",
			func(s *Scenario) {
				s.Rho, s.SLO, s.From, s.To = rho, 2500*time.Millisecond, 120*time.Second, 420*time.Second
			})
	}
	return all
}

// Find returns the scenario of an ID. Its errors are of type *FieldError.
func Find(id string) (Scenario, error) {
	all := Scenarios()
	if i := slices.IndexFunc(all, func(s Scenario) bool { return s.ID == id }); i >= 0 {
		return all[i], nil
	}
	var ids []string
	for _, s := range all {
		ids = append(ids, s.ID)
	}
	return Scenario{}, &FieldError{"scenario", fmt.Sprintf("%q", id), "one of " + strings.Join(ids, ", ")}
}

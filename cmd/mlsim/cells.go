package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/mlbalancer/mlbalancer/internal/sim"
)

// cell is one policy in one scenario, for all seeds.
type cell struct {
	scenario *sim.Scenario
	kind     sim.Kind
	figures  *sim.Figures // when it has run
}

// onlyByID are scenarios that take too long to be part of all.
var onlyByID = []string{"n-1000"}

// defaultStrategy is the strategy that scenarios are run with, and goals checked, if it is registered.
const defaultStrategy = "model_aware/affinity"

// cells returns what is to be run. It tells stderr which scenarios are left out since they need a trace.
func (f *flags) cells(stderr io.Writer) ([]*cell, error) {
	scenarios, err := f.chosen(stderr)
	if err != nil {
		return nil, err
	}
	var cells []*cell
	for i := range scenarios {
		sc := &scenarios[i]
		if err := sc.Validate(); err != nil {
			return nil, err
		}
		names := f.policies
		if names == nil {
			names = suited(sc)
		}
		for _, name := range names {
			k, err := sim.KindOf(name)
			if err != nil {
				return nil, err
			}
			cells = append(cells, &cell{scenario: sc, kind: k})
		}
	}
	return cells, nil
}

// chosen returns the scenarios that were asked for, as the flags want them.
func (f *flags) chosen(stderr io.Writer) ([]sim.Scenario, error) {
	var scenarios []sim.Scenario
	switch {
	case f.scenarios == nil:
		scenarios = append(scenarios, f.own)
	case slices.Equal(f.scenarios, []string{"all"}):
		for _, sc := range sim.Scenarios() {
			switch {
			case sc.NeedsTrace && f.trace == nil:
				fmt.Fprintf(stderr, "mlsim: %s is left out: it needs -trace\n", sc.ID)
			case !slices.Contains(onlyByID, sc.ID):
				scenarios = append(scenarios, sc)
			}
		}
	default:
		for _, id := range f.scenarios {
			sc, err := f.find(id)
			if err != nil {
				return nil, err
			}
			scenarios = append(scenarios, sc)
		}
		if f.trace != nil && !slices.ContainsFunc(scenarios, func(sc sim.Scenario) bool { return sc.NeedsTrace }) {
			return nil, fmt.Errorf("-trace is given with -scenario %s, want a scenario that replays one: -list names them",
				strings.Join(f.scenarios, ","))
		}
	}
	for i := range scenarios {
		sc := &scenarios[i]
		if sc.NeedsTrace || f.scenarios == nil {
			sc.Trace = f.trace
		}
		if f.clients > 0 {
			sc.Clients = f.clients
		}
		if f.reports != nil {
			sc.Reports = *f.reports
		}
	}
	return scenarios, nil
}

// suited returns the policies that a scenario is run with if none are named: outlier detection and retries where something fails.
func suited(sc *sim.Scenario) []string {
	var names []string
	fails := slices.ContainsFunc(sc.Changes, func(c sim.Change) bool { return c.Kind <= sim.BrokenModel })
	for _, k := range sim.Kinds() {
		switch {
		case k.Role == sim.Ours:
			if k.Name == subject() {
				names = append(names, k.Name)
				if fails {
					names = append(names, k.Name+"+retry")
				}
			}
		case fails || !strings.Contains(k.Name, "+od"):
			names = append(names, k.Name)
		}
	}
	return names
}

// subject returns the name of our policy that comparisons are about.
func subject() string {
	if _, err := sim.KindOf(defaultStrategy); err == nil {
		return defaultStrategy
	}
	return "model_aware/ring"
}

// list prints the scenarios and the policies.
func list(w io.Writer) error {
	var b strings.Builder
	b.WriteString("Scenarios:\n")
	for _, sc := range sim.Scenarios() {
		note := ""
		if sc.NeedsTrace {
			note = "; needs -trace"
		}
		if slices.Contains(onlyByID, sc.ID) {
			note = "; not part of all"
		}
		fmt.Fprintf(&b, "  %-14s %s%s\n", sc.ID, sc.About, note)
	}
	b.WriteString("\nPolicies:\n")
	for _, k := range sim.Kinds() {
		fmt.Fprintf(&b, "  %-22s %-8s %s\n", k.Name, k.Role, k.About)
	}
	b.WriteString("\nOurs may be followed by +retry (failed calls go to another server) and -breaker (no circuit breakers).\n")
	_, err := io.WriteString(w, b.String())
	return err
}

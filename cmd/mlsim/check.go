package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/mlbalancer/mlbalancer/internal/sim"
)

// verdict is what became of a goal.
type verdict struct {
	Goal     string  `json:"goal"`
	Scenario string  `json:"scenario"`
	Policy   string  `json:"policy"`
	Metric   string  `json:"metric"`
	Got      float64 `json:"got"`
	Limit    float64 `json:"limit"`
	// Rule says what the limit is made of.
	Rule string `json:"rule"`
	Met  bool   `json:"met"`
}

// missed is the error of goals that were missed.
type missed struct{ n, of int }

// Error implements error.
func (m missed) Error() string { return fmt.Sprintf("%d of %d goals missed", m.n, m.of) }

// checkGoals runs what the goals need, prints which of them are met, and returns an error if one is not.
func checkGoals(ctx context.Context, f *flags, list []goal, stdout, stderr io.Writer) error {
	ours := subject()
	if f.policies != nil {
		k, err := sim.KindOf(f.policies[0])
		if err != nil {
			return err
		}
		if len(f.policies) > 1 || k.Role != sim.Ours {
			return fmt.Errorf("policies is %q, want one of ours: goals are checked for it", f.policies)
		}
		ours = k.Name
	}
	bench, checks, err := newBench(f, list, ours, stderr)
	if err != nil {
		return err
	}
	if err := runAll(ctx, bench.cells, f.seeds, newProgress(stderr)); err != nil {
		return err
	}
	verdicts, failed := make([]verdict, len(checks)), 0
	for i, c := range checks {
		verdicts[i] = c.judge()
		if !verdicts[i].Met {
			failed++
		}
	}
	if f.json {
		err = writeVerdictsJSON(stdout, verdicts)
	} else {
		err = writeVerdicts(stdout, verdicts, f.seeds)
	}
	if err == nil && failed > 0 {
		err = missed{failed, len(checks)}
	}
	return err
}

// check is a goal and the cells that decide it.
type check struct {
	goal
	label         string // of the scenario with what differs from its own setup
	ours, against *cell  // against is nil if the goal is a plain limit
}

// bench collects the cells that goals need, each once.
type bench struct {
	cells     []*cell
	scenarios map[string]*sim.Scenario
	known     map[string]*cell
}

// newBench returns the cells and the checks of all goals. It tells stderr which are left out since they need a trace.
func newBench(f *flags, list []goal, ours string, stderr io.Writer) (*bench, []check, error) {
	b := &bench{scenarios: map[string]*sim.Scenario{}, known: map[string]*cell{}}
	var checks []check
	told := map[string]bool{}
	for _, g := range list {
		sc, err := f.find(g.scenario)
		if err != nil {
			return nil, nil, err
		}
		if sc.NeedsTrace && f.trace == nil {
			if !told[sc.ID] {
				fmt.Fprintf(stderr, "mlsim: goals for %s are left out: it needs -trace\n", sc.ID)
			}
			told[sc.ID] = true
			continue
		}
		sc.Trace = f.trace
		if !sc.NeedsTrace {
			sc.Trace = nil
		}
		c := check{goal: g, label: g.scenario}
		if g.clients > 0 {
			sc.Clients = g.clients
			c.label += fmt.Sprintf(" M=%d", g.clients)
		}
		if g.every > 0 {
			sc.Reports.Every = g.every
			c.label += fmt.Sprintf(" tau=%v", g.every)
		}
		if c.ours, err = b.cell(sc, ours+g.suffix); err != nil {
			return nil, nil, err
		}
		if g.against != "" {
			if c.against, err = b.cell(sc, g.against); err != nil {
				return nil, nil, err
			}
		}
		checks = append(checks, c)
	}
	return b, checks, nil
}

// cell returns the cell of a policy in a scenario.
func (b *bench) cell(sc sim.Scenario, policy string) (*cell, error) {
	id := fmt.Sprintf("%s/%d/%s", sc.ID, sc.Clients, sc.Reports)
	shared := b.scenarios[id]
	if shared == nil {
		shared = &sc
		b.scenarios[id] = shared
	}
	if c := b.known[id+"/"+policy]; c != nil {
		return c, nil
	}
	k, err := sim.KindOf(policy)
	if err != nil {
		return nil, err
	}
	c := &cell{scenario: shared, kind: k}
	b.known[id+"/"+policy] = c
	b.cells = append(b.cells, c)
	return c, nil
}

// judge compares what came of the cells.
func (c *check) judge() verdict {
	v := verdict{
		Goal: c.name, Scenario: c.label, Policy: c.ours.kind.Name, Metric: c.metric.name, Got: c.metric.of(c.ours.figures),
		Limit: c.limit, Rule: "limit",
	}
	if c.against != nil {
		other := c.metric.of(c.against.figures)
		v.Limit = c.factor * other
		v.Rule = fmt.Sprintf("%g x %s's %.4g", c.factor, c.against.kind.Name, other)
	}
	v.Met = v.Got <= v.Limit
	return v
}

// writeVerdicts writes the verdicts for people.
func writeVerdicts(w io.Writer, verdicts []verdict, seeds int) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.Join([]string{"", "goal", "scenario", "policy", "metric", "got", "at most", "which is"}, "\t"))
	for _, v := range verdicts {
		met := "met"
		if !v.Met {
			met = "MISSED"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%.4g\t%.4g\t%s\n",
			met, v.Goal, v.Scenario, v.Policy, v.Metric, v.Got, v.Limit, v.Rule)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%d seeds: percentiles are of all calls pooled, loads are summed.\n", seeds)
	return err
}

func writeVerdictsJSON(w io.Writer, verdicts []verdict) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(map[string]any{"goals": verdicts})
}

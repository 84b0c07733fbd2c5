package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/mlbalancer/mlbalancer/internal/sim"
)

// report is what came of all runs.
type report struct {
	Seeds     int              `json:"seeds"`
	Scenarios []scenarioReport `json:"scenarios"`
}

// scenarioReport is what came of one scenario.
type scenarioReport struct {
	ID       string         `json:"id"`
	About    string         `json:"about"`
	Setup    setup          `json:"setup"`
	Policies []policyReport `json:"policies"`
}

// setup is a scenario in figures. Times are in seconds.
type setup struct {
	Servers     int     `json:"servers"`
	Workers     int     `json:"workers"`
	Slots       int     `json:"slots"`
	Models      int     `json:"models"`
	Zipf        float64 `json:"zipf,omitempty"`
	Rho         float64 `json:"rho"`
	Swing       float64 `json:"swing"`
	SwingPeriod float64 `json:"swingPeriod"`
	Service     float64 `json:"service"`
	Load        float64 `json:"load"`
	Deadline    float64 `json:"deadline"`
	Clients     int     `json:"clients"`
	Reports     string  `json:"reports"`
	Warmup      float64 `json:"warmup"`
	Measured    float64 `json:"measured"`
	SLO         float64 `json:"slo,omitempty"`
}

// policyReport is what came of one policy.
type policyReport struct {
	Name string `json:"name"`
	Role string `json:"role"`
	*sim.Figures
}

// newReport returns the report of cells that have run. Those of one scenario follow one another.
func newReport(cells []*cell, seeds int) *report {
	r := &report{Seeds: seeds}
	var last *sim.Scenario
	for _, c := range cells {
		if c.scenario != last {
			last = c.scenario
			r.Scenarios = append(r.Scenarios, scenarioReport{ID: last.ID, About: last.About, Setup: newSetup(last)})
		}
		s := &r.Scenarios[len(r.Scenarios)-1]
		s.Policies = append(s.Policies, policyReport{Name: c.kind.Name, Role: c.kind.Role.String(), Figures: c.figures})
	}
	return r
}

func newSetup(sc *sim.Scenario) setup {
	s := setup{
		Servers: sc.Servers, Workers: sc.Workers, Slots: sc.Slots, Models: sc.Models, Zipf: sc.Zipf, Rho: sc.Rho, Swing: sc.Swing,
		SwingPeriod: sc.SwingPeriod.Seconds(), Service: sc.Service.Seconds(), Load: sc.Load.Seconds(),
		Deadline: sc.Deadline.Seconds(),
		Clients:  sc.Clients, Reports: sc.Reports.String(), Warmup: sc.From.Seconds(), Measured: (sc.To - sc.From).Seconds(),
		SLO: sc.SLO.Seconds(),
	}
	if sc.Trace != nil {
		s.Models, s.Zipf, s.Swing, s.SwingPeriod = len(sc.Trace.Models), 0, 0, 0
	}
	return s
}

// sentence is the setup in a line.
func (s setup) sentence() string {
	return fmt.Sprintf("%d servers x %d workers, %d slots; %d models; rho %.2f; loads of %gs; %d clients; reports %s; "+
		"measured from %g to %g s",
		s.Servers, s.Workers, s.Slots, s.Models, s.Rho, s.Load, s.Clients, s.Reports, s.Warmup, s.Warmup+s.Measured)
}

// notes say how figures of several seeds are put together.
func (r *report) notes() string {
	return fmt.Sprintf("Percentiles (seconds) are of the calls of all %d seeds pooled, a failed call counting with its deadline; "+
		"cold loads are summed over the seeds.", r.Seeds)
}

// writeJSON writes the report as JSON.
func (r *report) writeJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// writeTable writes the report for people.
func (r *report) writeTable(w io.Writer) error {
	for _, s := range r.Scenarios {
		if _, err := fmt.Fprintf(w, "%s: %s\n%s\n", s.ID, s.About, s.Setup.sentence()); err != nil {
			return err
		}
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(t, strings.Join(append(s.titles(), ""), "\t"))
		for _, p := range s.Policies {
			fmt.Fprintln(t, strings.Join(append(s.row(&p), ""), "\t"))
		}
		if err := t.Flush(); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	_, err := fmt.Fprintln(w, r.notes())
	return err
}

// titles are the heads of the columns of a scenario's table.
func (s *scenarioReport) titles() []string {
	t := []string{"policy", "role", "p50", "p99", "p99.9", "cold loads", "errors %"}
	if s.Setup.SLO > 0 {
		t = append(t, fmt.Sprintf("%% of capacity within %gs", s.Setup.SLO), "critical %")
	}
	return t
}

// row is a policy's line in it.
func (s *scenarioReport) row(p *policyReport) []string {
	row := []string{
		p.Name, p.Role, fmt.Sprintf("%.3f", p.P50), fmt.Sprintf("%.3f", p.P99), fmt.Sprintf("%.3f", p.P999),
		fmt.Sprint(p.Loads), fmt.Sprintf("%.3f", p.ErrorPercent),
	}
	if s.Setup.SLO > 0 {
		row = append(row, fmt.Sprintf("%.1f", p.GoodputPercent), fmt.Sprintf("%.1f", p.CriticalPercent))
	}
	return row
}

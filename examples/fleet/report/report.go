// Package report shows the result of a comparison: as a table, as JSON, and as a page with plots.
package report

import (
	"encoding/json"
	"io"

	"github.com/mlbalancer/mlbalancer/examples/fleet/breakers"
	"github.com/mlbalancer/mlbalancer/examples/fleet/stats"
)

// Report is what a comparison came to.
type Report struct {
	Trace Trace `json:"trace"`
	Setup Setup `json:"setup"`
	// Policies are the results, in the order of the replays. Every policy was sent the same calls.
	Policies []Policy `json:"policies"`
}

// Trace says what was replayed.
type Trace struct {
	Name   string `json:"name"`
	Rows   int    `json:"rows"`
	Models int    `json:"models"`
}

// Setup says how. Times are in milliseconds of model time.
type Setup struct {
	Servers  int     `json:"servers"`
	Slots    int     `json:"slots"`
	Workers  int     `json:"workers"`
	Clients  int     `json:"clients"`
	Rho      float64 `json:"rho"`
	Service  float64 `json:"service_ms"`
	Load     float64 `json:"load_ms"`
	Deadline float64 `json:"deadline_ms"`
	// Speed is how many times as fast as its model time the replay ran.
	Speed  float64 `json:"speed"`
	Warmup int     `json:"warmup_passes"`
	Passes int     `json:"passes"`
	// Seeds are those of the replays; figures are medians over them.
	Seeds []uint64 `json:"seeds"`
	// Measured is how long the measured part of one replay is.
	Measured float64 `json:"measured_ms"`
	Faults   []Fault `json:"faults,omitempty"`
	// Signals are what servers say of themselves, by name.
	Signals string `json:"signals"`
	// NoRetry says that no policy sends a failed call again.
	NoRetry bool `json:"no_retry,omitempty"`
	// What the replay ran with, and on how many processors.
	Go   string `json:"go"`
	GRPC string `json:"grpc"`
	CPUs int    `json:"cpus"`
}

// Fault is what went wrong in each replay. From and To are fractions of the measured part.
type Fault struct {
	Fault string  `json:"fault"`
	From  float64 `json:"from"`
	To    float64 `json:"to"`
}

// Policy is the result of one policy.
type Policy struct {
	Name string `json:"name"`
	stats.Figures
	// Runs are the figures of each seed, if there were several.
	Runs []stats.Figures `json:"runs,omitempty"`
	// Breakers is what the policy's circuit breakers did with the first seed; nil if it has none.
	Breakers *breakers.Record `json:"breakers,omitempty"`
	// Plots are of the first seed.
	Plots Plots `json:"-"`
}

// Plots are the curves and the map of one replay.
type Plots struct {
	// Exceedance is the share of calls (Y) that took at least so many seconds (X).
	Exceedance []stats.Point
	// P99 is the 99th percentile of latency (Y, seconds) over the time since the measurement began (X, seconds).
	P99 []stats.Point
	// Models are the names of the models, the most popular first, and Share is their share of the calls.
	Models []string
	Share  []float64
	// Resident is the share of the time for which each model (first index) was in memory of each server (second).
	Resident [][]float64
}

// WriteJSON writes the figures as one JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

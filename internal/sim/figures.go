package sim

import (
	"math"
	"slices"
)

// Figures are what the runs of one policy in one scenario with several seeds add up to. Latencies are pooled: a percentile is
// that of the calls of all seeds together. A call that failed counts with its deadline.
type Figures struct {
	Seeds int `json:"seeds"`
	Calls int `json:"calls"`
	// Errors is how many calls failed, Refused how many of them were sent nowhere.
	Errors  int `json:"errors"`
	Refused int `json:"refused"`
	// ErrorPercent is the share of the calls that failed.
	ErrorPercent float64 `json:"errorPercent"`
	// P50 and the others are percentiles of the latency in seconds, Mean its mean.
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	// P99BySeed is the 99th percentile for each seed alone, and LoadsBySeed how many loads of models began.
	P99BySeed   []float64 `json:"p99BySeed"`
	LoadsBySeed []int     `json:"loadsBySeed"`
	// Loads is the sum of LoadsBySeed.
	Loads int `json:"loads"`
	// ColdPercent is the share of the calls that waited for a load.
	ColdPercent float64 `json:"coldPercent"`
	// Retries is how many attempts there were beyond one for each call.
	Retries int `json:"retries"`
	// GoodputPercent is the work that was done within the scenario's SLO, over the fleet's capacity; CriticalPercent the share
	// of the critical calls that were. Both are means over the seeds, and 0 if the scenario has no SLO.
	GoodputPercent  float64 `json:"goodputPercent,omitempty"`
	CriticalPercent float64 `json:"criticalPercent,omitempty"`

	// Exceedance is the share of the calls that took longer than a latency, and OverTime the 99th percentile by the time when
	// calls arrived.
	Exceedance []Point `json:"-"`
	OverTime   []Point `json:"-"`
}

// Point is a point of a curve.
type Point struct{ X, Y float64 }

// Fold returns the figures of the results of a policy in a scenario, one for each seed.
func Fold(sc *Scenario, results []*Result) *Figures {
	f := &Figures{Seeds: len(results)}
	var all []float32
	sum, cold := 0.0, 0
	for _, r := range results {
		sorted := slices.Clone(r.Latencies)
		slices.Sort(sorted)
		all = append(all, sorted...)
		for _, l := range sorted {
			sum += float64(l)
		}
		f.P99BySeed = append(f.P99BySeed, Quantile(sorted, .99))
		f.LoadsBySeed = append(f.LoadsBySeed, r.Loads)
		f.Errors, f.Refused, f.Loads, f.Retries = f.Errors+r.Errors, f.Refused+r.Refused, f.Loads+r.Loads, f.Retries+r.Extra
		cold += r.Cold
		if sc.SLO > 0 {
			f.GoodputPercent += 100 * r.Goodput / float64(len(results))
			f.CriticalPercent += 100 * r.Critical / float64(len(results))
		}
	}
	slices.Sort(all)
	f.Calls = len(all)
	f.P50, f.P90, f.P99, f.P999 = Quantile(all, .5), Quantile(all, .9), Quantile(all, .99), Quantile(all, .999)
	if f.Calls > 0 {
		f.Mean = sum / float64(f.Calls)
		f.ErrorPercent = 100 * float64(f.Errors) / float64(f.Calls)
		f.ColdPercent = 100 * float64(cold) / float64(f.Calls)
	}
	f.Exceedance = exceedance(all)
	f.OverTime = overTime(results, (sc.To - sc.From).Seconds())
	return f
}

// exceedance returns the share of the values that are above each of some quantiles, evenly spread on a logarithmic scale down to
// 1 in 1000.
func exceedance(sorted []float32) []Point {
	const points = 90
	var curve []Point
	for i := range points + 1 {
		share := math.Pow(10, -3*float64(i)/points)
		curve = append(curve, Point{X: Quantile(sorted, 1-share), Y: share})
	}
	return curve
}

// overTime returns the 99th percentile in each of some windows of time.
func overTime(results []*Result, span float64) []Point {
	const windows = 60
	var byWindow [windows][]float32
	for _, r := range results {
		for i, at := range r.Starts {
			w := min(int(float64(at)/span*windows), windows-1)
			byWindow[w] = append(byWindow[w], r.Latencies[i])
		}
	}
	var curve []Point
	for w, values := range byWindow {
		if len(values) > 0 {
			slices.Sort(values)
			curve = append(curve, Point{X: (float64(w) + .5) / windows * span, Y: Quantile(values, .99)})
		}
	}
	return curve
}

// Package stats computes the figures of a replay from its samples.
package stats

import (
	"slices"
	"time"
)

// Sample is one call as its caller saw it, in model time.
type Sample struct {
	// At is when the call was due, since the start of the replay.
	At time.Duration
	// Latency is the time from At to the call's end, at most the caller's deadline; for a failed call, that deadline.
	Latency time.Duration
	// Late is how long after At the call was really sent.
	Late time.Duration
	// Code names the status of a failed call, such as "Unavailable", and Text is its message; both are empty for a success.
	Code, Text string
}

// Server is what one server did in the measured part.
type Server struct {
	// Calls is the number of requests that arrived.
	Calls uint64
	// Hits is how many of them found their model in memory.
	Hits uint64
	// Loads is the number of models that were loaded.
	Loads uint64
	// Busy is the work done, summed over workers, in model time.
	Busy time.Duration
}

// Figures are the result of one replay, or the medians of several. Times are in milliseconds of model time.
type Figures struct {
	// Calls is the number of calls sent.
	Calls int `json:"calls"`
	// Errors is the number that failed; ErrorCodes counts them by status, ErrorTexts by status and message.
	Errors     int            `json:"errors"`
	ErrorCodes map[string]int `json:"error_codes,omitempty"`
	ErrorTexts map[string]int `json:"error_texts,omitempty"`
	// The percentiles of the latency, in which a failed call counts with the deadline.
	P50  float64 `json:"p50_ms"`
	P95  float64 `json:"p95_ms"`
	P99  float64 `json:"p99_ms"`
	P999 float64 `json:"p999_ms"`
	Mean float64 `json:"mean_ms"`
	// ColdLoads is the number of times that a server loaded a model.
	ColdLoads int `json:"cold_loads"`
	// HitRate is the share of the requests that found their model in memory, and 0 if none arrived.
	HitRate float64 `json:"hit_rate"`
	// PeakToMeanLoad is the work of the busiest server over the mean of all, and 0 if none did any.
	PeakToMeanLoad float64 `json:"peak_to_mean_load"`
	// LateP99 is the 99th percentile of how late calls were sent. Where it is not small beside P50, the machine was
	// too busy for the replay.
	LateP99 float64 `json:"late_p99_ms"`
}

// Of returns the figures of a replay's samples and servers.
func Of(samples []Sample, servers []Server) Figures {
	f := Figures{Calls: len(samples)}
	latencies := make([]time.Duration, 0, len(samples))
	late := make([]time.Duration, 0, len(samples))
	total := time.Duration(0)
	for _, s := range samples {
		latencies, late = append(latencies, s.Latency), append(late, s.Late)
		total += s.Latency
		if s.Code != "" {
			if f.ErrorCodes == nil {
				f.ErrorCodes, f.ErrorTexts = make(map[string]int), make(map[string]int)
			}
			f.Errors++
			f.ErrorCodes[s.Code]++
			f.ErrorTexts[s.Code+": "+s.Text]++
		}
	}
	slices.Sort(latencies)
	slices.Sort(late)
	f.P50, f.P95 = Millis(Percentile(latencies, .50)), Millis(Percentile(latencies, .95))
	f.P99, f.P999 = Millis(Percentile(latencies, .99)), Millis(Percentile(latencies, .999))
	f.LateP99 = Millis(Percentile(late, .99))
	if len(samples) > 0 {
		f.Mean = Millis(total) / float64(len(samples))
	}
	var calls, hits uint64
	var busiest, busy time.Duration
	for _, s := range servers {
		calls += s.Calls
		hits += s.Hits
		f.ColdLoads += int(s.Loads)
		busy += s.Busy
		busiest = max(busiest, s.Busy)
	}
	if calls > 0 {
		f.HitRate = float64(hits) / float64(calls)
	}
	if busy > 0 {
		f.PeakToMeanLoad = float64(busiest) * float64(len(servers)) / float64(busy)
	}
	return f
}

// Percentile returns the smallest value of sorted that at least the share p of all values does not exceed (nearest rank),
// and 0 if there are none. p is from 0 to 1.
func Percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[rank(len(sorted), p)]
}

// Millis returns d in milliseconds.
func Millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Median returns the median of each figure by itself over several replays, at least one.
func Median(runs []Figures) Figures {
	f := Figures{
		Calls:          median(runs, func(f Figures) int { return f.Calls }),
		Errors:         median(runs, func(f Figures) int { return f.Errors }),
		P50:            median(runs, func(f Figures) float64 { return f.P50 }),
		P95:            median(runs, func(f Figures) float64 { return f.P95 }),
		P99:            median(runs, func(f Figures) float64 { return f.P99 }),
		P999:           median(runs, func(f Figures) float64 { return f.P999 }),
		Mean:           median(runs, func(f Figures) float64 { return f.Mean }),
		ColdLoads:      median(runs, func(f Figures) int { return f.ColdLoads }),
		HitRate:        median(runs, func(f Figures) float64 { return f.HitRate }),
		PeakToMeanLoad: median(runs, func(f Figures) float64 { return f.PeakToMeanLoad }),
		LateP99:        median(runs, func(f Figures) float64 { return f.LateP99 }),
	}
	f.ErrorCodes = medians(runs, func(f Figures) map[string]int { return f.ErrorCodes })
	f.ErrorTexts = medians(runs, func(f Figures) map[string]int { return f.ErrorTexts })
	return f
}

// medians returns the median of each count by itself, and nil if there are none.
func medians(runs []Figures, counts func(Figures) map[string]int) map[string]int {
	var all map[string]int
	for _, r := range runs {
		for key := range counts(r) {
			if all == nil {
				all = make(map[string]int)
			}
			all[key] = median(runs, func(f Figures) int { return counts(f)[key] })
		}
	}
	return all
}

// median returns the middle one of a figure's values, or the mean of the middle two.
func median[T int | float64](runs []Figures, figure func(Figures) T) T {
	values := make([]T, len(runs))
	for i, r := range runs {
		values[i] = figure(r)
	}
	slices.Sort(values)
	n := len(values)
	if n%2 == 1 {
		return values[n/2]
	}
	return (values[n/2-1] + values[n/2]) / 2
}

// Since returns what the server has done since its counters were at before.
func (s Server) Since(before Server) Server {
	return Server{Calls: s.Calls - before.Calls, Hits: s.Hits - before.Hits, Loads: s.Loads - before.Loads, Busy: s.Busy - before.Busy}
}

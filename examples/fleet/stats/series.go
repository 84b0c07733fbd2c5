package stats

import (
	"math"
	"slices"
	"time"
)

// Point is one point of a curve.
type Point struct{ X, Y float64 }

// rank returns the index, in n sorted values, of the smallest one that the share p of them does not exceed.
func rank(n int, p float64) int {
	r := int(math.Ceil(p*float64(n)-1e-9)) - 1
	return min(max(r, 0), n-1)
}

// Exceedance returns the curve of the share of samples (Y, from 1 down to 1/len) that take at least X seconds of model time, at no
// more than about n points: those that part the samples evenly on a log scale. It returns nil for no samples.
func Exceedance(samples []Sample, n int) []Point {
	if len(samples) == 0 {
		return nil
	}
	latencies := make([]time.Duration, len(samples))
	for i, s := range samples {
		latencies[i] = s.Latency
	}
	slices.Sort(latencies)
	total := float64(len(latencies))
	var curve []Point
	last := -1
	for i := range n {
		share := math.Pow(1/total, float64(i)/float64(max(1, n-1))) // from 1 to 1/total
		at := rank(len(latencies), 1-share)
		if i == n-1 {
			at = len(latencies) - 1
		}
		if at == last {
			continue
		}
		last = at
		curve = append(curve, Point{X: latencies[at].Seconds(), Y: (total - float64(at)) / total})
	}
	return curve
}

// P99Series returns the 99th percentile of latency, in seconds of model time, of the samples due in each of n equal windows from
// from to to. X is the middle of the window in seconds since from; windows without samples are left out.
func P99Series(samples []Sample, from, to time.Duration, n int) []Point {
	windows := make([][]time.Duration, n)
	for _, s := range samples {
		if w := int(int64(s.At-from) * int64(n) / int64(to-from)); w >= 0 && w < n {
			windows[w] = append(windows[w], s.Latency)
		}
	}
	var curve []Point
	width := (to - from).Seconds() / float64(n)
	for i, w := range windows {
		if len(w) > 0 {
			slices.Sort(w)
			curve = append(curve, Point{X: (float64(i) + .5) * width, Y: Percentile(w, .99).Seconds()})
		}
	}
	return curve
}

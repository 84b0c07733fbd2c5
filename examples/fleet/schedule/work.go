package schedule

import (
	"math"

	"github.com/mlbalancer/mlbalancer/examples/fleet/trace"
)

const (
	// workCV is the coefficient of variation of calls' work. Where the trace's own sizes vary less, the rest is drawn.
	workCV = 0.8
	// modelSigma is by how much models differ: the standard deviation of the log of their mean work.
	modelSigma = 0.4
)

// sizes returns the relative work of each row, whose mean is 1, as far as the trace knows it: in proportion to the measured
// duration if any row has one, else to the tokens of the answer, which a model generates one by one, if any row has them.
// Rows without are as large as the mean. It also returns whether models differ beyond that: durations contain their model's speed.
func sizes(t *trace.Trace) (size []float64, modelsDiffer bool) {
	measures := []func(trace.Row) float64{
		func(r trace.Row) float64 { return r.Duration },
		func(r trace.Row) float64 { return float64(r.OutputTokens) },
	}
	size = make([]float64, len(t.Rows))
	for i, measure := range measures {
		known, total := 0, 0.0
		for _, r := range t.Rows {
			if v := measure(r); v != trace.Unknown {
				known++
				total += v
			}
		}
		if total == 0 {
			continue
		}
		for j, r := range t.Rows {
			size[j] = 1
			if v := measure(r); v != trace.Unknown {
				size[j] = v * float64(known) / total
			}
		}
		return size, i > 0
	}
	for i := range size {
		size[i] = 1
	}
	return size, true
}

// residualSigma returns the standard deviation of the log of a lognormal factor which, drawn for each call, brings the coefficient
// of variation of sizes with mean 1 up to workCV; 0 if theirs is larger already.
func residualSigma(size []float64) float64 {
	squares := 0.0
	for _, v := range size {
		squares += v * v
	}
	squares /= float64(len(size))
	if squares >= 1+workCV*workCV {
		return 0
	}
	return math.Sqrt(math.Log((1 + workCV*workCV) / squares))
}

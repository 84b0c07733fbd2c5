package workload

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/mlbalancer/mlbalancer/examples/fleet/trace"
)

// many is a workload large enough for its statistics to be stable.
func many() []*trace.Trace {
	var all []*trace.Trace
	for seed := range uint64(20) {
		all = append(all, Generate(seed))
	}
	return all
}

func TestShape(t *testing.T) {
	w := Generate(1)
	assert.Len(t, w.Rows, 1500)
	assert.InDelta(t, 600, w.Span(), 1e-9)
	assert.Zero(t, w.Rows[0].Arrival)
	assert.True(t, slices.IsSortedFunc(w.Rows, func(a, b trace.Row) int {
		switch {
		case a.Arrival < b.Arrival:
			return -1
		case a.Arrival > b.Arrival:
			return 1
		}
		return 0
	}))
	assert.Equal(t, w, Generate(1), "the same seed gives the same workload")
	assert.NotEqual(t, w.Rows, Generate(2).Rows)
}

// TestPopularity fits the exponent of Zipf's law by maximum likelihood: the mean log rank that was seen is the one expected.
func TestPopularity(t *testing.T) {
	counts := make([]int, models)
	total := 0
	for _, w := range many() {
		perModel := w.Models()
		assert.LessOrEqual(t, len(perModel), models)
		byRank := make([]int, 0, models)
		for _, n := range perModel {
			byRank = append(byRank, n)
		}
		slices.SortFunc(byRank, func(a, b int) int { return b - a })
		for r, n := range byRank {
			counts[r] += n
			total += n
		}
	}
	seen := 0.0
	for r, n := range counts {
		seen += float64(n) * math.Log(float64(r+1)) / float64(total)
	}
	expected := func(s float64) float64 {
		sum, weighted := 0.0, 0.0
		for r := 1; r <= models; r++ {
			p := math.Pow(float64(r), -s)
			sum += p
			weighted += p * math.Log(float64(r))
		}
		return weighted / sum
	}
	lo, hi := 0.0, 4.0
	for range 60 {
		if mid := (lo + hi) / 2; expected(mid) > seen {
			lo = mid
		} else {
			hi = mid
		}
	}
	assert.InDelta(t, 1.04, lo, 0.04)
}

func TestRunsOfTheSameModel(t *testing.T) {
	same, pairs := 0, 0
	for _, w := range many() {
		for i, r := range w.Rows[1:] {
			pairs++
			if r.Model == w.Rows[i].Model {
				same++
			}
		}
	}
	assert.InDelta(t, 0.169, float64(same)/float64(pairs), 0.01)
}

func TestBurstiness(t *testing.T) {
	var gaps []float64
	for _, w := range many() {
		for i, r := range w.Rows[1:] {
			gaps = append(gaps, r.Arrival-w.Rows[i].Arrival)
		}
	}
	sum, squares := 0.0, 0.0
	for _, g := range gaps {
		sum += g
		squares += g * g
	}
	mean := sum / float64(len(gaps))
	cv := math.Sqrt(squares/float64(len(gaps))-mean*mean) / mean
	assert.InDelta(t, 1.10, cv, 0.03)
}

func TestTokens(t *testing.T) {
	var in, out []int
	for _, w := range many() {
		for _, r := range w.Rows {
			in, out = append(in, r.InputTokens), append(out, r.OutputTokens)
		}
	}
	slices.Sort(in)
	slices.Sort(out)
	at := func(sorted []int, p float64) float64 { return float64(sorted[int(p*float64(len(sorted)))]) }
	for _, c := range []struct {
		name   string
		sorted []int
		p      float64
		want   float64
	}{
		{"input p50", in, .50, 40}, {"input p95", in, .95, 656}, {"input p99", in, .99, 929},
		{"output p50", out, .50, 211}, {"output p95", out, .95, 513}, {"output p99", out, .99, 785},
	} {
		assert.InEpsilon(t, c.want, at(c.sorted, c.p), 0.05, c.name)
	}
	assert.GreaterOrEqual(t, in[0], 1)
	assert.Less(t, in[len(in)-1], 1024)
	assert.GreaterOrEqual(t, out[0], 1)
	assert.Less(t, out[len(out)-1], 1024)
}

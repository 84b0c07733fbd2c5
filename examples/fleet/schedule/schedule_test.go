package schedule

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mlbalancer/mlbalancer/examples/fleet/trace"
	"github.com/mlbalancer/mlbalancer/examples/fleet/workload"
)

var options = Options{Workers: 32, Rho: 0.7, Service: 250 * time.Millisecond, Warmup: 2, Passes: 10, Clients: 4, Seed: 1}

func rowsOf(n int, row func(i int) trace.Row) *trace.Trace {
	t := &trace.Trace{}
	for i := range n {
		r := row(i)
		r.Arrival = float64(i)
		t.Rows = append(t.Rows, r)
	}
	return t
}

func workOf(s *Schedule) (mean, cv float64) {
	sum, squares := 0.0, 0.0
	for _, c := range s.Calls {
		sum += c.Work.Seconds()
		squares += c.Work.Seconds() * c.Work.Seconds()
	}
	n := float64(len(s.Calls))
	mean = sum / n
	return mean, math.Sqrt(squares/n-mean*mean) / mean
}

func TestEveryRowInEveryPass(t *testing.T) {
	w := workload.Generate(3)
	s := New(w, options)
	require.Len(t, s.Calls, 12*1500)
	assert.True(t, slices.IsSortedFunc(s.Calls, func(a, b Call) int { return int(a.At - b.At) }))
	for i, c := range s.Calls {
		require.Equal(t, w.Rows[i%1500].Model, s.Models[c.Model])
	}
	measured := 0
	for _, c := range s.Calls {
		if c.At >= s.From {
			measured++
			assert.Less(t, c.At, s.To)
		}
	}
	assert.Equal(t, 10*1500, measured)
}

func TestOfferedLoad(t *testing.T) {
	s := New(workload.Generate(3), options)
	total := time.Duration(0)
	for _, c := range s.Calls {
		total += c.Work
		assert.Positive(t, c.Work)
	}
	assert.InDelta(t, 0.7, total.Seconds()/(32*s.To.Seconds()), 1e-6)
	assert.InDelta(t, 16.74, (s.To-s.From).Seconds()/10, 0.01, "one pass")
}

func TestSeeds(t *testing.T) {
	w := workload.Generate(3)
	assert.Equal(t, New(w, options), New(w, options))
	other := options
	other.Seed = 2
	assert.NotEqual(t, New(w, options).Calls, New(w, other).Calls)
}

func TestClientsShareTheCalls(t *testing.T) {
	s := New(workload.Generate(3), options)
	perClient := make([]int, 4)
	for _, c := range s.Calls {
		perClient[c.Client]++
	}
	for _, n := range perClient {
		assert.InEpsilon(t, 4500, n, 0.05)
	}
}

func TestModelsByPopularity(t *testing.T) {
	s := New(&trace.Trace{Rows: []trace.Row{{Model: "b"}, {Model: "c"}, {Model: "a"}, {Model: "c"}}}, options)
	assert.Equal(t, []string{"c", "a", "b"}, s.Models)
	assert.Equal(t, []float64{.5, .25, .25}, s.Share)
}

func TestWorkIsDrawnWhereTheTraceSaysNothing(t *testing.T) {
	unknown := rowsOf(3000, func(int) trace.Row {
		return trace.Row{Model: "m", InputTokens: trace.Unknown, OutputTokens: trace.Unknown, Duration: trace.Unknown}
	})
	mean, cv := workOf(New(unknown, options))
	assert.InDelta(t, 0.25, mean, 1e-6)
	assert.InDelta(t, 0.8, cv, 0.05)
}

func TestWorkFollowsTokens(t *testing.T) {
	tokens := rowsOf(3000, func(i int) trace.Row {
		r := trace.Row{Model: "m", InputTokens: 7, OutputTokens: 100, Duration: trace.Unknown}
		switch i % 3 {
		case 1:
			r.OutputTokens = 300
		case 2:
			r.OutputTokens = trace.Unknown
		}
		return r
	})
	s := New(tokens, options)
	mean, cv := workOf(s)
	assert.InDelta(t, 0.25, mean, 1e-6)
	assert.InDelta(t, 0.8, cv, 0.05)
	var sums [3]float64
	for i, c := range s.Calls {
		sums[i%3] += c.Work.Seconds()
	}
	assert.InEpsilon(t, 3, sums[1]/sums[0], 0.05)
	assert.InEpsilon(t, 2, sums[2]/sums[0], 0.05, "an unknown size counts as the mean")
}

func TestWorkFollowsDurations(t *testing.T) {
	durations := rowsOf(10, func(i int) trace.Row {
		r := trace.Row{Model: "quick", OutputTokens: 1000, Duration: 0}
		if i == 9 {
			r.Model, r.Duration = "slow", 40
		}
		return r
	})
	s := New(durations, options)
	mean, _ := workOf(s)
	assert.InDelta(t, 0.25, mean, 1e-6)
	for i, c := range s.Calls {
		if i%10 == 9 {
			assert.Equal(t, 2500*time.Millisecond, c.Work, "sizes that vary enough are taken as they are")
		} else {
			assert.Zero(t, c.Work)
		}
	}
}

func TestModelsDiffer(t *testing.T) {
	two := rowsOf(2000, func(i int) trace.Row {
		return trace.Row{Model: []string{"a", "b"}[i%2], InputTokens: trace.Unknown, OutputTokens: trace.Unknown, Duration: trace.Unknown}
	})
	var ratios []float64
	for seed := range uint64(200) {
		o := options
		o.Seed, o.Warmup, o.Passes = seed, 0, 1
		var sums [2]float64
		for _, c := range New(two, o).Calls {
			sums[c.Model] += c.Work.Seconds()
		}
		ratios = append(ratios, math.Log(sums[0]/sums[1]))
	}
	squares := 0.0
	for _, r := range ratios {
		squares += r * r
	}
	assert.InEpsilon(t, 0.4*math.Sqrt2, math.Sqrt(squares/float64(len(ratios))), 0.15)
}

func TestArrivalsAtOnce(t *testing.T) {
	s := New(&trace.Trace{Rows: []trace.Row{{Model: "a"}, {Model: "b"}}}, options)
	assert.Zero(t, s.Calls[1].At)
	assert.Equal(t, s.Calls[0].At+s.To/12, s.Calls[2].At, "the next pass")
}

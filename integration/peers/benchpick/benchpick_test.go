package main

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const output = `goos: linux
BenchmarkPick/round_robin/n=10-2         	13256848	         8.918 ns/op	       0 B/op	       0 allocs/op
BenchmarkPick/outlier_detection+round_robin/n=10-16	 1433776	        79.08 ns/op	      48 B/op	       1 allocs/op
BenchmarkUpdate/round_robin/flap/n=1000  	     213	    539169 ns/op
PASS
`

func TestRepetitionReadsTestOutput(t *testing.T) {
	r := repetition{}
	require.NoError(t, r.add(output))
	assert.Equal(t, repetition{
		"Pick/round_robin/n=10":                   {ns: 8.918},
		"Pick/outlier_detection+round_robin/n=10": {ns: 79.08, allocs: 1},
		"Update/round_robin/flap/n=1000":          {ns: 539169},
	}, r)
	assert.True(t, math.IsNaN(r.ns("Pick/round_robin/n=100")), "a benchmark that was not run")
}

func TestRepetitionRejectsResultWithoutTime(t *testing.T) {
	assert.ErrorContains(t, repetition{}.add("BenchmarkPick/round_robin/n=10-2  1  3 allocs/op"), "Pick/round_robin/n=10")
}

func TestMedian(t *testing.T) {
	of := func(ns ...float64) float64 {
		var rs results
		for _, v := range ns {
			rs = append(rs, repetition{"x": {ns: v}})
		}
		return rs.median(func(r repetition) float64 { return r.ns("x") })
	}
	assert.Equal(t, 2.0, of(9, 1, 2))
	assert.Equal(t, 3.0, of(9, 1, 2, 4))
	assert.Equal(t, 7.0, of(7))
	assert.True(t, math.IsNaN(of(1, math.NaN(), 2)))
}

func TestGoals(t *testing.T) {
	v := nanoseconds("B/%s")
	rs := func(a, b float64) results { return results{{"B/a": {ns: a}, "B/b": {ns: b}}} }
	tests := []struct {
		name string
		goal goal
		rs   results
		got  string
		met  bool
	}{
		{"atMost met", atMost(v, "a", 2), rs(2, 0), "2", true},
		{"atMost missed", atMost(v, "a", 2), rs(2.1, 0), "2.10", false},
		{"ratioAtMost met", ratioAtMost(v, "a", "b", 0.25), rs(25, 100), "0.25x", true},
		{"ratioAtMost missed", ratioAtMost(v, "a", "b", 0.25), rs(26, 100), "0.26x", false},
		{"ratioAtLeast met", ratioAtLeast(v, "a", "b", "b", 0.9), rs(90, 100), "0.90x of 100", true},
		{"ratioAtLeast missed", ratioAtLeast(v, "a", "b", "b", 0.9), rs(89, 100), "0.89x of 100", false},
		{"differenceAtMost met", differenceAtMost(v, "a", "b", 2.5, "ms"), rs(4, 2), "+2 ms", true},
		{"differenceAtMost missed", differenceAtMost(v, "a", "b", 2.5, "ms"), rs(5, 2), "+3 ms", false},
		{"withinNoise met", withinNoise(v, "a", "b"), append(rs(11, 10), rs(11, 12)...), "11 against 12", true},
		{"withinNoise missed", withinNoise(v, "a", "b"), append(rs(13, 10), rs(13, 12)...), "13 against 12", false},
		{"ratioAtMostFastest met", ratioAtMostFastest(v, "a", []string{"b", "a"}, 1), rs(30, 100), "1.00x", true},
		{"ratioAtMostFastest missed", ratioAtMostFastest(v, "b", []string{"b", "a"}, .5), rs(30, 15), "1.00x", false},
		{"extremes", ratioAtMost(v, "a", "b", 0.25), append(append(rs(10, 100), rs(40, 100)...), rs(20, 100)...), "0.20x (0.10x .. 0.40x)", true},
		{"not measured", ratioAtMost(v, "c", "b", 0.25), rs(25, 100), "NaNx", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, met := tt.goal.judge(tt.rs)
			assert.Equal(t, tt.got, got)
			assert.Equal(t, tt.met, met)
		})
	}
}

func TestTableHasEachMeasureWithItsGoals(t *testing.T) {
	r := repetition{}
	require.NoError(t, r.add(output))
	var b strings.Builder
	require.NoError(t, pickTable.print(&b, results{r}))
	for _, m := range pickTable.measures {
		assert.Contains(t, b.String(), m.name)
		for _, g := range m.goals {
			assert.Contains(t, b.String(), g.text)
		}
	}
	assert.Contains(t, b.String(), "8.92")
	assert.Contains(t, b.String(), "0 of 12 goals met", "nothing of ours was measured")
}

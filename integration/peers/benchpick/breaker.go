package main

import "fmt"

// ours is the label of our circuit breaker.
const ours = "ours"

// libraries are the labels of other libraries' breakers.
var libraries = []string{"gobreaker", "gobreaker_window", "failsafe", "failsafe_window"}

// breakerTable is what closed circuit breakers cost.
var breakerTable = table{
	groups: []group{
		{"^BenchmarkBreaker$", "100ms"},
		{"^BenchmarkBreakerScaling$", "500ms"},
	},
	columns: []column{
		{"gobreaker", "gobreaker"},
		{"gobreaker_window", "+window"},
		{"failsafe", "failsafe"},
		{"failsafe_window", "+window"},
		{ours, "ours"},
		{"ours_clock", "+clock"},
		{control, "control"},
	},
	legend: `gobreaker: sony/gobreaker/v2, failsafe: failsafe-go's circuitbreaker, both by failures in a row; +window: by failures in a row or a share
of them in a window of 30 s, and by the latter alone. ours: breaker, all rules on; the caller tells it the time. +clock: and reads the clock for
it, before the call and after it, as others do themselves where they need it. control: as many atomic additions as ours does atomic writes.
`,
	measures: []measure{
		{"call, ns", nanoseconds("Breaker/%s"), []goal{
			ratioAtMostFastest(nanoseconds("Breaker/%s"), ours, libraries, 0.5),
		}},
		{"call, allocations", allocs("Breaker/%s"), []goal{atMost(allocs("Breaker/%s"), ours, 0)}},
		{"same breaker, 1 goroutine, ns", scaling("same", 1), nil},
		{"same breaker, 2 goroutines, ns", scaling("same", 2), nil},
		{"  speed-up", added("same"), []goal{ratioAtLeast(added("same"), ours, control, control, 0.9)}},
		{"breaker each, 1 goroutine, ns", scaling("distinct", 1), nil},
		{"breaker each, 2 goroutines, ns", scaling("distinct", 2), nil},
		{"  speed-up", added("distinct"), []goal{ratioAtLeast(added("distinct"), ours, control, control, 0.9)}},
	},
}

// scaling is the time of a call when goroutines share the work; the control has one for all kinds.
func scaling(kind string, goroutines int) value {
	return func(r repetition, label string) float64 {
		if label != control {
			label += "_" + kind
		}
		return r.ns(fmt.Sprintf("BreakerScaling/%s/goroutines=%d", label, goroutines))
	}
}

// added is how much more work gets done by two goroutines than by one.
func added(kind string) value { return ratio(scaling(kind, 1), scaling(kind, 2)) }

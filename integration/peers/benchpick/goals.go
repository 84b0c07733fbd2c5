package main

import (
	"fmt"
	"math"
	"slices"
)

// The labels that goals are about.
const (
	roundRobin   = "round_robin"
	ringHash     = "ring_hash"
	modelAware   = "model_aware"
	record       = "model_aware_record"
	metadataOnly = "model_aware_metadata"
	interceptor  = "model_aware_interceptor"
	byHash       = "model_aware_ring"
	control      = "control"
)

// value is a number of one policy in one repetition; NaN if it was not measured.
type value func(r repetition, label string) float64

// nanoseconds is a benchmark's time; the format has a %s for the policy's label.
func nanoseconds(format string) value {
	return func(r repetition, label string) float64 { return r.ns(fmt.Sprintf(format, label)) }
}

// allocs is a benchmark's number of allocations.
func allocs(format string) value {
	return func(r repetition, label string) float64 { return r.allocs(fmt.Sprintf(format, label)) }
}

func scaled(v value, by float64) value {
	return func(r repetition, label string) float64 { return v(r, label) * by }
}

func ratio(a, b value) value {
	return func(r repetition, label string) float64 { return a(r, label) / b(r, label) }
}

// goal is something to reach, with a judge that says what was reached and whether it is enough. What was not measured never is.
type goal struct {
	text  string
	judge func(rs results) (got string, met bool)
}

func atMost(v value, label string, bound float64) goal {
	return goal{
		text: fmt.Sprintf("%s at most %g", label, bound),
		judge: func(rs results) (string, bool) {
			got := func(r repetition) float64 { return v(r, label) }
			return rs.spread(got, cell), rs.median(got) <= bound
		},
	}
}

func ratioAtMost(v value, label, other string, bound float64) goal {
	return goal{
		text: fmt.Sprintf("%s at most %gx %s", label, bound, other),
		judge: func(rs results) (string, bool) {
			got := func(r repetition) float64 { return v(r, label) / v(r, other) }
			return rs.spread(got, times), rs.median(got) <= bound
		},
	}
}

// ratioAtMostFastest is ratioAtMost with the fastest of several others.
func ratioAtMostFastest(v value, label string, others []string, bound float64) goal {
	return goal{
		text: fmt.Sprintf("%s at most %gx the fastest of the others", label, bound),
		judge: func(rs results) (string, bool) {
			got := func(r repetition) float64 {
				fastest := math.Inf(1)
				for _, o := range others {
					fastest = min(fastest, v(r, o))
				}
				return v(r, label) / fastest
			}
			return rs.spread(got, times), rs.median(got) <= bound
		},
	}
}

func ratioAtLeast(v value, label, other, text string, bound float64) goal {
	return goal{
		text: fmt.Sprintf("%s at least %gx %s", label, bound, text),
		judge: func(rs results) (string, bool) {
			got := func(r repetition) float64 { return v(r, label) / v(r, other) }
			base := rs.median(func(r repetition) float64 { return v(r, other) })
			return rs.spread(got, times) + " of " + cell(base), rs.median(got) >= bound
		},
	}
}

func differenceAtMost(v value, label, other string, bound float64, unit string) goal {
	if unit != "" {
		unit = " " + unit
	}
	return goal{
		text: fmt.Sprintf("%s at most %s + %g%s", label, other, bound, unit),
		judge: func(rs results) (string, bool) {
			got := func(r repetition) float64 { return v(r, label) - v(r, other) }
			return rs.spread(got, func(d float64) string { return fmt.Sprintf("%+.3g", d) }) + unit, rs.median(got) <= bound
		},
	}
}

// withinNoise is the goal that the median is not above what the other policy itself needed in its slowest repetition.
func withinNoise(v value, label, other string) goal {
	return goal{
		text: fmt.Sprintf("%s no slower than the slowest repetition of %s", label, other),
		judge: func(rs results) (string, bool) {
			got := rs.median(func(r repetition) float64 { return v(r, label) })
			slowest := slices.Max(rs.values(func(r repetition) float64 { return v(r, other) }))
			return fmt.Sprintf("%s against %s", cell(got), cell(slowest)), got <= slowest
		},
	}
}

func times(ratio float64) string { return fmt.Sprintf("%.2fx", ratio) }

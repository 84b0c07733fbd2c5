package main

import (
	"fmt"
	"io"
	"math"
	"strings"
)

// columns are the rows of the benchmarks, and what the table calls them.
var columns = []struct{ label, head string }{
	{roundRobin, "round_robin"},
	{"weighted_round_robin", "weighted_rr"},
	{"least_request", "least_req"},
	{"outlier_detection+round_robin", "outlier+rr"},
	{ringHash, "ring_hash"},
	{modelAware, "model_aware"},
	{metadataOnly, "+metadata"},
	{interceptor, "+intercept"},
}

const legend = `weighted_rr: weighted_round_robin, outlier+rr: outlier_detection over round_robin. A pick is Pick + Done. model_aware: the request is
in the context. +metadata: the model is read from outgoing metadata. +intercept: interceptor, reading the message, Pick and Done.
`

// measure is one line of the table: a number for each policy that has one, and what model_aware is to reach in it.
type measure struct {
	name  string
	value value
	goals []goal
}

var measures = []measure{
	{"pick, n=10, ns", pick(10), nil},
	{"pick, n=100, ns", pick(100), nil},
	{"pick, n=1000, ns", pick(1000), []goal{
		ratioAtMost(pick(1000), modelAware, ringHash, 0.25),
		ratioAtMost(pick(1000), metadataOnly, ringHash, 0.5),
	}},
	{"pick, n=1000 / n=10", ratio(pick(1000), pick(10)), []goal{atMost(ratio(pick(1000), pick(10)), modelAware, 1.3)}},
	{"pick, allocations", allocs("Pick/%s/n=1000"), []goal{
		atMost(allocs("Pick/%s/n=1000"), modelAware, 0),
		atMost(allocs("Pick/%s/n=1000"), metadataOnly, 1),
	}},
	{"pick on all cores, n=1000, ns", nanoseconds("PickParallel/%s/n=1000"), nil},
	{"speed-up by a 2nd goroutine", speedUp, []goal{
		ratioAtLeast(speedUp, modelAware, "control", "padded atomic additions", 0.9),
	}},
	{"replace 1 of 1000, ms", replace, []goal{differenceAtMost(replace, modelAware, roundRobin, 2.5, "ms")}},
	{"  with 150,000 points, ms", func(r repetition, label string) float64 { return replace(r, label+"_150k") }, nil},
	{"flap 1 of 1000, ms", flap, []goal{ratioAtMost(flap, modelAware, roundRobin, 1.3)}},
	{"cold start of 1000, ms", coldStart, []goal{ratioAtMost(coldStart, modelAware, roundRobin, 2)}},
	{"unary call, us", unary, []goal{withinNoise(unary, modelAware, roundRobin)}},
	{"unary call, allocations", allocs("Unary/%s"), []goal{differenceAtMost(allocs("Unary/%s"), modelAware, roundRobin, 1, "")}},
}

func pick(n int) value { return nanoseconds("Pick/%s/n=" + fmt.Sprint(n)) }

var (
	replace   = scaled(nanoseconds("Update/%s/replace/n=1000"), 1e-6)
	flap      = scaled(nanoseconds("Update/%s/flap/n=1000"), 1e-6)
	coldStart = scaled(nanoseconds("ColdStart/%s/n=1000"), 1e-6)
	unary     = scaled(nanoseconds("Unary/%s"), 1e-3)
	speedUp   = ratio(nanoseconds("Scaling/%s/goroutines=1"), nanoseconds("Scaling/%s/goroutines=2"))
)

// printTable prints all measures with their goals, and how many of these were met.
func printTable(out io.Writer, rs results) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%-30s", "")
	for _, c := range columns {
		fmt.Fprintf(&b, "%12s", c.head)
	}
	b.WriteString("\n")
	var met, goals int
	for _, m := range measures {
		line := fmt.Sprintf("%-30s", m.name)
		for _, c := range columns {
			line += fmt.Sprintf("%12s", cell(rs.median(func(r repetition) float64 { return m.value(r, c.label) })))
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
		for _, g := range m.goals {
			got, ok := g.judge(rs)
			verdict := "MISSED"
			if ok {
				verdict = "met"
				met++
			}
			goals++
			fmt.Fprintf(&b, "  %-6s  %s: %s\n", verdict, g.text, got)
		}
	}
	fmt.Fprintf(&b, "\n%s\n%d of %d goals met\n", legend, met, goals)
	_, err := io.WriteString(out, b.String())
	return err
}

// cell formats a number with three digits or so; what was not measured is empty.
func cell(v float64) string {
	switch {
	case math.IsNaN(v):
		return ""
	case v == math.Trunc(v) || v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

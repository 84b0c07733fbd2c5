package main

import (
	"fmt"
	"math"
)

// healthTable is what it takes to hear of servers how they are.
var healthTable = table{
	groups: []group{
		{"^BenchmarkHealth$", "1x"},
		{"^Benchmark(Report|Watch)$", "100ms"},
	},
	columns: []column{{modelAware, "model_aware"}, {control, "control"}},
	legend: `1,000 servers report once a second what they hold, 20 models each, and how busy they are; no calls are made. A core's share is that of the whole
process: source, monitor, reports and the look at all endpoints ten times a second, and what the servers do themselves. control: the same
servers, whose reports are not even decoded. Neither has a transport. report: own work for one report once it is decoded. look: at all 1,000 endpoints.
`,
	measures: []measure{
		{"share of a core, %", share, []goal{differenceAtMost(share, modelAware, control, 5, "%")}},
		{"report, 4 models, ns", report(4), nil},
		{"report, 20 models, ns", report(20), nil},
		{"report, 64 models, ns", report(64), nil},
		{"report, allocations", reportAllocs, []goal{atMost(reportAllocs, modelAware, 0)}},
		{"look, ms", look, []goal{atMost(look, modelAware, 0.5)}},
	},
}

// share is the part of one core, in percent: the benchmark's nanoseconds are those of a second.
var share = scaled(nanoseconds("Health/%s/n=1000"), 1e-7)

var look = onlyOurs(func(r repetition) float64 { return r.ns("Watch/n=1000") * 1e-6 })

var reportAllocs = onlyOurs(func(r repetition) float64 { return r.allocs("Report/models=64") })

func report(models int) value {
	return onlyOurs(func(r repetition) float64 { return r.ns(fmt.Sprintf("Report/models=%d", models)) })
}

// onlyOurs is a number that only model_aware has.
func onlyOurs(v func(repetition) float64) value {
	return func(r repetition, label string) float64 {
		if label != modelAware {
			return math.NaN()
		}
		return v(r)
	}
}

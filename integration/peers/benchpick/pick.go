package main

import "fmt"

// pickTable is what policies cost.
var pickTable = table{
	groups: []group{
		{"^BenchmarkPick$", "150ms"},
		{"^Benchmark(PickParallel|Scaling|Place)$", "60ms"},
		{"^BenchmarkUpdate$", "100ms"},
		{"^BenchmarkColdStart$", "3x"},
		{"^BenchmarkUnary$", "200ms"},
	},
	columns: []column{
		{roundRobin, "round_robin"},
		{"weighted_round_robin", "weighted_rr"},
		{"least_request", "least_req"},
		{"outlier_detection+round_robin", "outlier+rr"},
		{ringHash, "ring_hash"},
		{modelAware, "model_aware"},
		{record, "+record"},
		{metadataOnly, "+metadata"},
		{interceptor, "+intercept"},
		{byHash, "by hash"},
	},
	legend: `weighted_rr: weighted_round_robin, outlier+rr: outlier_detection over round_robin. A pick is Pick + Done; its time is that of the
processors. model_aware: servers say which models they hold, each of 1024 on 3, and how busy they are; breakers and health are on, and the request is
in the context. +record: so is the interceptor's record of the call. +metadata: the model is read from outgoing metadata. +intercept: interceptor,
reading the message, Pick and Done. by hash: servers say nothing. Below "pick on all cores" servers say nothing, but for the speed-up.
`,
	measures: []measure{
		{"pick, n=10, ns", pick(10), nil},
		{"pick, n=100, ns", pick(100), nil},
		{"pick, n=1000, ns", pick(1000), []goal{
			ratioAtMost(pick(1000), record, ringHash, 0.35),
			ratioAtMost(pick(1000), metadataOnly, ringHash, 0.5),
		}},
		{"pick, n=1000 / n=10", ratio(pick(1000), pick(10)), []goal{atMost(ratio(pick(1000), pick(10)), record, 1.3)}},
		{"pick, allocations", allocs("Pick/%s/n=1000"), []goal{
			atMost(allocs("Pick/%s/n=1000"), record, 0),
			atMost(allocs("Pick/%s/n=1000"), metadataOnly, 1),
		}},
		{"  its placing, breakers on, ns", placing("on"), []goal{
			differenceAtMost(guarding, modelAware, withoutBreakers, 60, "ns"),
		}},
		{"  its placing, without, ns", placing("off"), nil},
		{"pick on all cores, n=1000, ns", nanoseconds("PickParallel/%s/n=1000"), nil},
		{"speed-up by a 2nd goroutine", speedUp, []goal{
			ratioAtLeast(speedUp, modelAware, control, "padded atomic additions", 0.9),
		}},
		{"replace 1 of 1000, ms", replace, []goal{differenceAtMost(replace, modelAware, roundRobin, 2.5, "ms")}},
		{"  with 150,000 points, ms", func(r repetition, label string) float64 { return replace(r, label+"_150k") }, nil},
		{"flap 1 of 1000, ms", flap, []goal{ratioAtMost(flap, modelAware, roundRobin, 1.3)}},
		{"cold start of 1000, ms", coldStart, []goal{ratioAtMost(coldStart, modelAware, roundRobin, 2)}},
		{"unary call, us", unary, []goal{withinNoise(unary, modelAware, roundRobin)}},
		{"unary call, allocations", allocs("Unary/%s"), []goal{differenceAtMost(allocs("Unary/%s"), modelAware, roundRobin, 1, "")}},
	},
}

func pick(n int) value { return nanoseconds("Pick/%s/n=" + fmt.Sprint(n)) }

var (
	replace   = scaled(nanoseconds("Update/%s/replace/n=1000"), 1e-6)
	flap      = scaled(nanoseconds("Update/%s/flap/n=1000"), 1e-6)
	coldStart = scaled(nanoseconds("ColdStart/%s/n=1000"), 1e-6)
	unary     = scaled(nanoseconds("Unary/%s"), 1e-3)
	speedUp   = ratio(nanoseconds("Scaling/%s/goroutines=1"), nanoseconds("Scaling/%s/goroutines=2"))
)

// withoutBreakers stands for model_aware's placing of calls where no circuit breakers are.
const withoutBreakers = "without breakers"

// guarding is what it takes to place and end a call, with and without breakers.
func guarding(r repetition, label string) float64 {
	if label == withoutBreakers {
		return placing("off")(r, modelAware)
	}
	return placing("on")(r, label)
}

func placing(guard string) value {
	return onlyOurs(func(r repetition) float64 { return r.ns("Place/guard=" + guard + "/n=1000") })
}

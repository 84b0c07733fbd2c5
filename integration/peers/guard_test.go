package peers

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/mlbalancer/mlbalancer/breaker"
	"github.com/mlbalancer/mlbalancer/picker"
)

// guardedTable returns a table of n endpoints, all ready, with all circuit breakers closed or without any, and its guard, if it has one.
func guardedTable(n int, guarded bool) (*picker.Table, *picker.Guard) {
	members, status := make([]picker.Member, n), make([]picker.Status, n)
	breakers := make([]*breaker.Breaker, n)
	for i := range n {
		e := picker.NewEndpoint(fmt.Sprintf("10.0.%d.%d:8001", i>>8, i&255))
		members[i], status[i], breakers[i] = picker.Member{Endpoint: e, Weight: 1}, picker.Ready, e.Breaker()
	}
	plan := picker.Plan{Inference: picker.Defaults("ring"), Update: picker.Defaults("p2c")}
	if guarded {
		plan.Guard = picker.NewGuard(breaker.DefaultConfig(), rand.Uint64)
		plan.Guard.Group.Set(1, breakers)
	}
	return picker.NewTable(nil, plan, members, status, rand.Uint64), plan.Guard
}

// BenchmarkPlace measures what circuit breakers add to a call: how it is placed and ended, with and without them, for 1024 models in turn. The
// time is that of the fastest slice, as in BenchmarkScaling.
func BenchmarkPlace(b *testing.B) {
	for _, n := range fleetSizes {
		for _, guard := range []string{"on", "off"} {
			table, _ := guardedTable(n, guard == "on")
			queries := make([]picker.Query, nModels)
			for i := range queries {
				queries[i].Request = picker.Request{ModelID: modelName(i)}
				queries[i].Key = picker.Key(modelName(i))
			}
			var a picker.Attempt
			now, i := int64(time.Hour), 0
			call := func() {
				q := &queries[i%nModels]
				i++
				now += 1000
				q.Now = now
				if table.Place(q, now+int64(time.Minute), &a).Index < 0 {
					b.Fatal("refused")
				}
				now += 1000
				a.End(now, picker.Success, 0, true)
			}
			for range 2 * nModels { // each endpoint knows its models
				call()
			}
			b.Run(fmt.Sprintf("guard=%s/n=%d", guard, n), func(b *testing.B) {
				fastest(b, 1, nModels, func(_, n int) {
					for range n {
						call()
					}
				})
				b.ReportAllocs()
				b.ReportMetric(testing.AllocsPerRun(nModels, call), "allocs/op")
			})
		}
	}
}

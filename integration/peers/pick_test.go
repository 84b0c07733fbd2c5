package peers

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

var fleetSizes = []int{10, 100, large}

// BenchmarkPick measures a pick and its end, with as many endpoints as n says, all of them ready, and 1024 models in turn. The time is what
// the process has had of the processors, so that it holds what the garbage costs that is made, and not what else the machine does.
func BenchmarkPick(b *testing.B) {
	for _, r := range rows() {
		b.Run(r.label, func(b *testing.B) {
			for _, n := range fleetSizes {
				f := newFleet(b, r.policy, n)
				b.Run(fmt.Sprintf("n=%d", n), func(b *testing.B) {
					p := f.picker()
					i := 0
					call := func() {
						if _, err := r.once(p, i); err != nil {
							b.Fatal(err)
						}
						i++
					}
					for range 2 * nModels { // each endpoint knows its models
						call()
					}
					b.ReportAllocs()
					before := processorTime(b)
					for b.Loop() {
						call()
					}
					b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "ns/op")
					b.ReportMetric(testing.AllocsPerRun(nModels, call), "allocs/op")
					if r.policy.told > 0 {
						require.Greater(b, f.warm(nModels), nModels*9/10, "calls that went to where their model is")
					}
				})
			}
		})
	}
}

// BenchmarkPickParallel is BenchmarkPick with a goroutine on each core.
func BenchmarkPickParallel(b *testing.B) {
	for _, r := range rows() {
		if r.single {
			continue
		}
		b.Run(r.label, func(b *testing.B) {
			for _, n := range fleetSizes {
				f := newFleet(b, r.policy, n)
				b.Run(fmt.Sprintf("n=%d", n), func(b *testing.B) {
					b.ReportAllocs()
					p := f.picker()
					b.RunParallel(func(pb *testing.PB) {
						for i := 0; pb.Next(); i++ {
							if _, err := r.once(p, i); err != nil {
								b.Error(err)
								return
							}
						}
					})
				})
			}
		})
	}
}

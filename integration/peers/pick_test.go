package peers

import (
	"fmt"
	"testing"

	gbalancer "google.golang.org/grpc/balancer"
)

var fleetSizes = []int{10, 100, 1000}

// row is one line of the pick table: a policy, and how a call's model reaches it.
type row struct {
	label  string
	policy policy
	calls  []gbalancer.PickInfo
}

func rows() []row {
	var all []row
	plain := calls(withMetadata)
	for _, p := range policies {
		all = append(all, row{label: p.label, policy: p, calls: plain})
	}
	return all
}

// BenchmarkPick measures a pick and its end, with as many endpoints as n says, all of them ready, and 1024 models in turn.
func BenchmarkPick(b *testing.B) {
	for _, r := range rows() {
		b.Run(r.label, func(b *testing.B) {
			for _, n := range fleetSizes {
				f := newFleet(b, r.policy, n)
				b.Run(fmt.Sprintf("n=%d", n), func(b *testing.B) {
					b.ReportAllocs()
					p := f.picker()
					i := 0
					for b.Loop() {
						res, err := p.Pick(r.calls[i%nModels])
						if err != nil {
							b.Fatal(err)
						}
						if res.Done != nil {
							res.Done(answered)
						}
						i++
					}
				})
			}
		})
	}
}

// BenchmarkPickParallel is BenchmarkPick with a goroutine on each core.
func BenchmarkPickParallel(b *testing.B) {
	for _, r := range rows() {
		b.Run(r.label, func(b *testing.B) {
			for _, n := range fleetSizes {
				f := newFleet(b, r.policy, n)
				b.Run(fmt.Sprintf("n=%d", n), func(b *testing.B) {
					b.ReportAllocs()
					p := f.picker()
					b.RunParallel(func(pb *testing.PB) {
						i := 0
						for pb.Next() {
							res, err := p.Pick(r.calls[i%nModels])
							if err != nil {
								b.Error(err)
								return
							}
							if res.Done != nil {
								res.Done(answered)
							}
							i++
						}
					})
				})
			}
		})
	}
}

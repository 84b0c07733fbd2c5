package picker

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// BenchmarkRingPick measures the ring's Pick with a hundred models in turn (hot: their part of the ring stays in the cache) and
// with a million (random). No call is in flight: that is the common case, in which the home is chosen.
func BenchmarkRingPick(b *testing.B) { benchmarkPick(b, "ring") }

// BenchmarkP2CPick measures p2c's Pick among endpoints that have all answered before, at latencies that differ by up to two times.
func BenchmarkP2CPick(b *testing.B) { benchmarkPick(b, "p2c") }

// BenchmarkRoundRobinPick is the reference.
func BenchmarkRoundRobinPick(b *testing.B) { benchmarkPick(b, "round_robin") }

func benchmarkPick(b *testing.B, strategy string) {
	for _, n := range []int{10, 100, 1000} {
		table := readyTable(Defaults(strategy), rand.Uint64, n)
		for i := range n {
			table.Member(i).Observe(1, time.Duration(1000+i%1000)*time.Microsecond)
		}
		for _, models := range []struct {
			name string
			n    int
		}{{"hot", 100}, {"random", 1 << 20}} {
			keys := make([]uint64, models.n)
			for i := range keys {
				keys[i] = rand.Uint64()
			}
			b.Run(fmt.Sprintf("n=%d/%s", n, models.name), func(b *testing.B) {
				q := Query{Request: Request{ModelID: "m"}, Now: 2}
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					q.Key = keys[i]
					if i++; i == len(keys) {
						i = 0
					}
					table.Pick(&q)
				}
			})
		}
	}
}

// BenchmarkRingBuild measures the first build of a ring.
func BenchmarkRingBuild(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		members, _ := fleet(n)
		b.Run(fmt.Sprintf("n=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Defaults("ring").Build(Build{Members: members})
			}
		})
	}
}

// BenchmarkRingReplace1of1000 measures the ring's part in replacing one of a thousand endpoints.
func BenchmarkRingReplace1of1000(b *testing.B) {
	members, _ := fleet(1000)
	other := append([]Member(nil), members...)
	other[500].Endpoint = NewEndpoint("10.0.1.1:8001")
	was := Defaults("ring").Build(Build{Members: members})
	is := Defaults("ring").Build(Build{Members: other, Previous: was})
	b.ReportAllocs()
	for b.Loop() {
		was = Defaults("ring").Build(Build{Members: members, Previous: is})
		is, was = was, is
		members, other = other, members
	}
}

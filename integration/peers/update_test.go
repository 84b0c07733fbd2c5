package peers

import (
	"testing"
)

const large = 1000

// BenchmarkUpdate measures how long a change of the fleet takes to become a new picker.
//
//   - replace: the resolver lists one new endpoint in place of an old one, until a picker of the new list is published;
//   - flap: one connection is lost and comes back, until the last of the pickers that this brings about: model_aware's only when
//     the server has answered what it was asked about its health, since it gets no calls before.
func BenchmarkUpdate(b *testing.B) {
	all := policies
	if fine, ok := ringHashFine(); ok {
		all = append(all[:len(all):len(all)], fine)
	}
	for _, p := range all {
		b.Run(p.label, func(b *testing.B) {
			f := newFleet(b, p, large)
			b.Run("flap/n=1000", func(b *testing.B) {
				b.ReportAllocs()
				call := calls(withMetadata)[0]
				sc := f.pick(call).(*subConn)
				for b.Loop() {
					f.flap(sc, call)
				}
			})
			b.Run("replace/n=1000", func(b *testing.B) {
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					f.replace(i % large)
					b.StopTimer()
					if !p.lazy {
						f.awaitUsable()
					}
					i++
					b.StartTimer()
				}
			})
		})
	}
}

// BenchmarkColdStart measures from the first list of endpoints until all of them are connected and the picker gives calls to each:
// under model_aware that takes an answer of each server about its health, which the servers here, having none, give at once. A lazy
// policy has no such time, and outlier detection works on behind the scenes for a while that cannot be seen.
func BenchmarkColdStart(b *testing.B) {
	for _, p := range policies {
		if p.lazy || p.name == outlier.name {
			continue
		}
		b.Run(p.label+"/n=1000", func(b *testing.B) {
			homes := newFleet(b, p, large).homes
			b.ReportAllocs()
			for b.Loop() {
				f := connect(b, p, large)
				f.awaitPlaces(homes...)
				b.StopTimer()
				f.close()
				b.StartTimer()
			}
		})
	}
}

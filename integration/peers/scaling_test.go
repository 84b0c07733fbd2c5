package peers

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// paddedCounter is a counter on cache lines of its own.
type paddedCounter struct {
	_ [64]byte
	n atomic.Uint64
	_ [64]byte
}

// BenchmarkScaling measures what a second goroutine adds when the two have nothing to do with each other: calls for two models that live on
// different endpoints. The control does nothing but atomic additions, to a counter for each goroutine that shares its cache line with
// nobody; it says what the machine gives.
func BenchmarkScaling(b *testing.B) {
	for _, goroutines := range []int{1, 2} {
		size := fmt.Sprintf("goroutines=%d", goroutines)
		b.Run("control/"+size, func(b *testing.B) {
			counters := make([]paddedCounter, goroutines)
			share(b, goroutines, func(g, n int) {
				for range n {
					counters[g].n.Add(1)
					counters[g].n.Add(1)
					counters[g].n.Add(1)
					counters[g].n.Add(1)
				}
			})
		})
	}
	for _, r := range rows() {
		if r.label != roundRobin.label && r.label != modelAware.label {
			continue
		}
		b.Run(r.label, func(b *testing.B) {
			f := newFleet(b, r.policy, large)
			models := f.apart()
			for _, goroutines := range []int{1, 2} {
				b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) {
					p := f.picker()
					share(b, goroutines, func(g, n int) {
						for range n {
							if _, err := r.once(p, models[g]); err != nil {
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

// share has a number of goroutines do b.N operations between them.
func share(b *testing.B, goroutines int, do func(g, n int)) {
	var wg sync.WaitGroup
	b.ResetTimer()
	for g := range goroutines {
		wg.Go(func() { do(g, b.N/goroutines) })
	}
	wg.Wait()
}

// apart returns two models whose calls go to different endpoints.
func (f *fleet) apart() [2]int {
	infos := calls(withMetadata)
	first := f.pick(infos[0])
	for i, call := range infos {
		if f.pick(call) != first {
			return [2]int{0, i}
		}
	}
	require.FailNow(f.tb, "all models are on one endpoint")
	return [2]int{}
}

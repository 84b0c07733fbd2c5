package breaker

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// benchGroup returns a group of n breakers with the default rules.
func benchGroup(n int) (*Group, []*Breaker) {
	g := NewGroup(DefaultConfig(), rand.Uint64)
	members := make([]*Breaker, n)
	for i := range members {
		members[i] = New(fmt.Sprint("e", i))
	}
	g.Set(0, members)
	return g, members
}

// BenchmarkAllowDone is a call on a closed breaker: with a slow time, as inference has one, and without.
func BenchmarkAllowDone(b *testing.B) {
	for _, slow := range []time.Duration{time.Second, 0} {
		b.Run(fmt.Sprintf("slow=%v", slow), func(b *testing.B) {
			_, members := benchGroup(2)
			breaker := members[0]
			b.ReportAllocs()
			now := int64(0)
			for b.Loop() {
				now += 1000
				p, _ := breaker.Allow(now, slow)
				breaker.Done(p, now, Success)
			}
		})
	}
}

// BenchmarkPair is a call on a closed pair.
func BenchmarkPair(b *testing.B) {
	_, members := benchGroup(2)
	pair := NewPair(members[0], "m")
	b.ReportAllocs()
	now := int64(0)
	for b.Loop() {
		now += 1000
		p, _ := pair.Allow(now, time.Second)
		pair.Done(p, now, Success)
	}
}

// BenchmarkFailure is a failed call, with a success after each so that the breaker stays closed.
func BenchmarkFailure(b *testing.B) {
	c := DefaultConfig()
	c.MaxEjectionPercent = 0
	g, members := benchGroup(10)
	g.Configure(0, c)
	breaker := members[0]
	b.ReportAllocs()
	now := int64(0)
	for b.Loop() {
		now += 1000
		p, _ := breaker.Allow(now, time.Second)
		breaker.Done(p, now, Failure)
		p, _ = breaker.Allow(now, time.Second)
		breaker.Done(p, now, Success)
	}
}

// BenchmarkTick is the tick of a group all of whose breakers are closed.
func BenchmarkTick(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprintf("n=%d", n), func(b *testing.B) {
			g, _ := benchGroup(n)
			b.ReportAllocs()
			now := int64(0)
			for b.Loop() {
				now += int64(100 * time.Millisecond)
				g.Tick(now)
			}
		})
	}
}

// paddedCounters are as many counters as a call writes to, on cache lines that no other goroutine writes to.
type paddedCounters struct {
	_ [128]byte
	n [3]struct {
		atomic.Uint64
		_ [56]byte
	}
	_ [128]byte
}

// BenchmarkScaling measures what a second goroutine adds: to calls on one breaker, to calls on a breaker for each, and to a
// control that does nothing but the three atomic writes of a call. Compare the ratios of 1 to 2 goroutines.
func BenchmarkScaling(b *testing.B) {
	call := func(breaker *Breaker, n int) {
		now := int64(0)
		for range n {
			now += 1000
			p, _ := breaker.Allow(now, time.Second)
			breaker.Done(p, now, Success)
		}
	}
	for _, goroutines := range []int{1, 2} {
		share := func(b *testing.B, do func(g, n int)) {
			var wg sync.WaitGroup
			b.ResetTimer()
			for g := range goroutines {
				wg.Go(func() { do(g, b.N/goroutines) })
			}
			wg.Wait()
		}
		size := fmt.Sprintf("goroutines=%d", goroutines)
		b.Run("control/"+size, func(b *testing.B) {
			counters := make([]paddedCounters, goroutines)
			share(b, func(g, n int) {
				c := &counters[g].n
				for range n {
					c[0].Add(1)
					c[1].Add(1)
					c[2].Add(1)
				}
			})
		})
		b.Run("same/"+size, func(b *testing.B) {
			_, members := benchGroup(2)
			share(b, func(_, n int) { call(members[0], n) })
		})
		b.Run("distinct/"+size, func(b *testing.B) {
			_, members := benchGroup(2)
			share(b, func(g, n int) { call(members[g], n) })
		})
	}
}

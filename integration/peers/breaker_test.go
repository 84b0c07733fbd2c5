package peers

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/sony/gobreaker/v2"
	"github.com/stretchr/testify/require"

	"github.com/mlbalancer/mlbalancer/breaker"
)

// guardedCall asks a closed circuit breaker for n calls, one after another, and tells it that they succeeded. It returns how many were
// let through.
type guardedCall func(n int) (passed int)

// breakerRow is one line of the breaker table.
type breakerRow struct {
	label string
	// make returns a breaker's guardedCall for each of several goroutines, and the breaker is one for all of them unless distinct.
	make func(goroutines int, distinct bool) []guardedCall
}

// The rules of a window: half of at least 10 calls in 30 s fail.
const (
	window      = 30 * time.Second
	minRequests = 10
	inARow      = 5
)

// breakerRows are each library with the rule that costs it least, failures in a row, and with a window; ours has all its rules on. gobreaker
// is asked through Execute, since its two steps allocate.
func breakerRows() []breakerRow {
	return []breakerRow{
		{"gobreaker", each(func() guardedCall {
			return gobreakerCall(gobreaker.Settings{})
		})},
		{"gobreaker_window", each(func() guardedCall {
			return gobreakerCall(gobreaker.Settings{
				Interval: window, BucketPeriod: window / 10,
				ReadyToTrip: func(c gobreaker.Counts) bool {
					return c.ConsecutiveFailures >= inARow || c.Requests >= minRequests && 2*c.TotalFailures >= c.Requests
				},
			})
		})},
		{"failsafe", each(func() guardedCall {
			return failsafeCall(circuitbreaker.NewBuilder[any]().WithFailureThreshold(inARow))
		})},
		{"failsafe_window", each(func() guardedCall {
			return failsafeCall(circuitbreaker.NewBuilder[any]().WithFailureRateThreshold(.5, minRequests, window))
		})},
		{"ours", func(goroutines int, distinct bool) []guardedCall {
			return ours(goroutines, distinct, func() func() int64 {
				var c struct { // a cache line of its own: the clocks of two goroutines must not slow each other down
					_   [64]byte
					now int64
					_   [64]byte
				}
				return func() int64 {
					c.now += 1000
					return c.now
				}
			})
		}},
		{"ours_clock", func(goroutines int, distinct bool) []guardedCall {
			start := time.Now()
			return ours(goroutines, distinct, func() func() int64 {
				return func() int64 { return int64(time.Since(start)) }
			})
		}},
	}
}

// each returns a breakerRow's make for breakers of which a guardedCall has no state of its own.
func each(newCall func() guardedCall) func(int, bool) []guardedCall {
	return func(goroutines int, distinct bool) []guardedCall {
		calls := make([]guardedCall, goroutines)
		for g := range calls {
			if g == 0 || distinct {
				calls[g] = newCall()
			} else {
				calls[g] = calls[0]
			}
		}
		return calls
	}
}

func gobreakerCall(s gobreaker.Settings) guardedCall {
	cb := gobreaker.NewCircuitBreaker[struct{}](s)
	succeed := func() (struct{}, error) { return struct{}{}, nil }
	return func(n int) (passed int) {
		for range n {
			if _, err := cb.Execute(succeed); err == nil {
				passed++
			}
		}
		return passed
	}
}

func failsafeCall(builder circuitbreaker.Builder[any]) guardedCall {
	cb := builder.Build()
	return func(n int) (passed int) {
		for range n {
			if cb.TryAcquirePermit() {
				passed++
				cb.RecordSuccess()
			}
		}
		return passed
	}
}

// ours is a breaker in a group, asked for calls that are slow after a second. It is told the time by each goroutine's clock.
func ours(goroutines int, distinct bool, newClock func() func() int64) []guardedCall {
	members := make([]*breaker.Breaker, goroutines)
	for g := range members {
		members[g] = breaker.New(fmt.Sprint("endpoint-", g))
	}
	breaker.NewGroup(breaker.DefaultConfig(), rand.Uint64).Set(0, members)
	calls := make([]guardedCall, goroutines)
	for g := range calls {
		b, clock := members[0], newClock()
		if distinct {
			b = members[g]
		}
		calls[g] = func(n int) (passed int) {
			for range n {
				permit, ok := b.Allow(clock(), time.Second)
				if ok {
					passed++
				}
				b.Done(permit, clock(), breaker.Success)
			}
			return passed
		}
	}
	return calls
}

// BenchmarkBreaker measures a call that a closed breaker lets through and that succeeds; the time is that of the fastest slice, as in
// BenchmarkScaling.
func BenchmarkBreaker(b *testing.B) {
	for _, r := range breakerRows() {
		b.Run(r.label, func(b *testing.B) {
			call := r.make(1, false)[0]
			fastest(b, 1, 1<<14, func(_, n int) {
				if call(n) != n {
					b.Error("refused")
				}
			})
			b.ReportAllocs()
			b.ReportMetric(testing.AllocsPerRun(1000, func() { call(1) }), "allocs/op")
		})
	}
}

// BenchmarkBreakerScaling measures what a second goroutine adds, with the same breaker for both and with one for each. The control
// does as many atomic additions as ours does atomic writes for a call, to a counter for each goroutine that shares its cache line with
// nobody. See BenchmarkScaling for the method.
func BenchmarkBreakerScaling(b *testing.B) {
	for _, goroutines := range []int{1, 2} {
		size := fmt.Sprintf("goroutines=%d", goroutines)
		b.Run("control/"+size, func(b *testing.B) {
			counters := make([]paddedCounter, goroutines)
			fastest(b, goroutines, 1<<16, func(g, n int) {
				for range n {
					counters[g].n.Add(1) // the call begins
					counters[g].n.Add(1) // it ends
					counters[g].n.Add(1) // it succeeded
				}
			})
		})
	}
	for _, r := range breakerRows() {
		if r.label != "gobreaker" && r.label != "failsafe" && r.label != "ours" {
			continue
		}
		for _, kind := range []string{"same", "distinct"} {
			for _, goroutines := range []int{1, 2} {
				b.Run(fmt.Sprintf("%s_%s/goroutines=%d", r.label, kind, goroutines), func(b *testing.B) {
					calls := r.make(goroutines, kind == "distinct")
					fastest(b, goroutines, 1<<14, func(g, n int) {
						if calls[g](n) != n {
							b.Error("refused")
						}
					})
				})
			}
		}
	}
}

func TestBreakersOfTheTablePassCalls(t *testing.T) {
	for _, r := range breakerRows() {
		for _, distinct := range []bool{false, true} {
			calls := r.make(2, distinct)
			require.Len(t, calls, 2)
			for _, call := range calls {
				require.Equal(t, 100, call(100), r.label)
			}
		}
	}
}

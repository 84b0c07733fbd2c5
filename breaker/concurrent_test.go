package breaker

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Everything at once, and then nothing is left behind: no call in flight, no probe, no place.
func TestConcurrentCallsLeaveNothingBehind(t *testing.T) {
	t.Run("leases hold", func(t *testing.T) { testConcurrentCalls(t, time.Hour) })
	t.Run("leases run out", func(t *testing.T) { testConcurrentCalls(t, 0) })
}

func testConcurrentCalls(t *testing.T, slow time.Duration) {
	c := DefaultConfig()
	c.OpenFor, c.MaxOpenFor = Duration(2*time.Millisecond), Duration(20*time.Millisecond)
	c.MaxEjectionPercent = 75
	g := NewGroup(c, rand.Uint64)
	members := make([]*Breaker, 4)
	probes := make([]atomic.Int64, len(members))
	for i := range members {
		members[i] = New(fmt.Sprint("e", i))
	}
	g.Set(0, members)
	var clock, allowed, refused atomic.Int64
	var done atomic.Bool
	var calling, ticking sync.WaitGroup
	ticking.Go(func() {
		for !done.Load() {
			now := clock.Add(int64(time.Millisecond))
			g.Tick(now)
			g.Next(now)
			g.Drain(func(e Event) { _ = e.String() })
			for _, b := range members {
				b.Counts()
				b.Last()
				assert.Positive(t, b.Ramp(now))
			}
		}
	})
	for id := range 4 {
		calling.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(id), 10))
			type call struct {
				Permit
				member int
			}
			var inFlight []call
			end := func() {
				k := rng.IntN(len(inFlight))
				x := inFlight[k]
				inFlight = append(inFlight[:k], inFlight[k+1:]...)
				if x.Probe() {
					probes[x.member].Add(-1)
				}
				o := []Outcome{Success, Success, Failure, Slow, Unsent, Neutral}[rng.IntN(6)]
				members[x.member].Done(x.Permit, clock.Load(), o)
			}
			for range 30_000 {
				i := rng.IntN(len(members))
				now := clock.Add(int64(10 * time.Microsecond))
				members[i].Status(now)
				p, ok := members[i].Allow(now, slow+time.Duration(rng.IntN(2))*time.Millisecond)
				if ok {
					allowed.Add(1)
					if p.Probe() {
						if n := probes[i].Add(1); slow > 0 {
							assert.LessOrEqual(t, n, int64(3))
						}
					}
					inFlight = append(inFlight, call{p, i})
				} else {
					refused.Add(1)
				}
				if len(inFlight) > rng.IntN(20) {
					end()
				}
			}
			for len(inFlight) > 0 {
				end()
			}
		})
	}
	calling.Wait()
	done.Store(true)
	ticking.Wait()
	require.Greater(t, allowed.Load(), int64(1000))
	require.Greater(t, refused.Load(), int64(1000))
	open := 0
	for _, b := range members {
		w := word(b.word.Load())
		for i := range b.stripes {
			for j := range b.stripes[i].calls {
				assert.Zero(t, b.stripes[i].calls[j].Load())
			}
		}
		for i := range b.probes {
			assert.Zero(t, b.probes[i].Load())
		}
		if w.state() != Closed {
			open++
		}
		assert.Zero(t, inEpoch(&b.late, w.epoch()))
	}
	n, _ := g.Open()
	assert.Equal(t, open, n)
}

// Ten callers at the same instant, as in BRK-13 (d).
func TestConcurrentCallersGetThreeProbes(t *testing.T) {
	for range 200 {
		w := newWorld(t, 1, nil)
		b := w.members[0]
		w.open(b)
		w.wait(b.OpenLeft(w.now))
		var calling sync.WaitGroup
		var granted atomic.Int64
		start := make(chan struct{})
		for range 10 {
			calling.Go(func() {
				<-start
				if _, ok := b.Allow(w.now, time.Second); ok {
					granted.Add(1)
				}
			})
		}
		close(start)
		calling.Wait()
		require.Equal(t, int64(3), granted.Load())
		require.Equal(t, []Rule{Consecutive, Due}, w.rules())
	}
}

func TestConcurrentCountsAreExact(t *testing.T) {
	w := newWorld(t, 1, func(c *Config) { c.ConsecutiveFailures, c.FailureRatio, c.SlowCall.Ratio = 0, 0, 0 })
	b := w.members[0]
	var calling sync.WaitGroup
	const each = 3000
	for range 4 {
		calling.Go(func() {
			for i := range each {
				p, _ := b.Allow(w.now, time.Second)
				b.Done(p, w.now, []Outcome{Success, Failure, Slow}[i%3])
			}
		})
	}
	calling.Wait()
	assert.Equal(t, Counts{Calls: 4 * each, Failures: 4 * each / 3, Slow: 4 * each / 3}, b.Counts())
}

func TestNothingAllocates(t *testing.T) {
	w := newWorld(t, 40, func(c *Config) { c.Sequential = true })
	b, pair := w.members[0], NewPair(w.members[1], "m")
	for name, f := range map[string]func(){
		"success": func() { w.call(b, Success) },
		"failure": func() { w.call(b, Failure, Success, Success, Success) },
		"slow":    func() { w.call(b, Slow, Success, Success, Success) },
		"neutral": func() { w.call(b, Neutral) },
		"unsent":  func() { w.call(b, Unsent) },
		"pair":    func() { p, _ := pair.Allow(w.now, time.Second); pair.Done(p, w.now, Success) },
		"pair fails": func() {
			for _, o := range []Outcome{Failure, Success, Success, Success} {
				p, _ := pair.Allow(w.now, time.Second)
				pair.Done(p, w.now, o)
			}
		},
		"faults": func() { b.ModelFault(1, w.now); b.ModelOK(1) },
		"reading": func() {
			b.Status(w.now)
			b.Ramp(w.now)
			b.State()
			b.Counts()
			b.Next(w.now)
			b.OpenLeft(w.now)
		},
		"tick": func() { w.wait(100 * time.Millisecond); w.group.Tick(w.now); w.group.Next(w.now) },
	} {
		assert.Zero(t, testing.AllocsPerRun(1000, f), name)
	}
	require.Empty(t, w.rules())

	w = newWorld(t, 1, nil)
	b = w.members[0]
	w.open(b)
	assert.Zero(t, testing.AllocsPerRun(1000, func() { w.refused(b); b.Status(w.now) }), "refusal")
	w.wait(b.OpenLeft(w.now))
	w.call(b, Unsent)
	assert.Zero(t, testing.AllocsPerRun(1000, func() { w.call(b, Unsent) }), "probe")
}

func TestSizes(t *testing.T) {
	assert.LessOrEqual(t, unsafe.Sizeof(Pair{}), uintptr(128))
	assert.LessOrEqual(t, unsafe.Sizeof(Permit{}), uintptr(16))
	assert.Equal(t, uintptr(64), unsafe.Sizeof(stripe{}), "one cache line")
	assert.LessOrEqual(t, unsafe.Sizeof(Breaker{}), uintptr(1024))
	t.Logf("Pair %d, Permit %d, Breaker %d and %d stripes of %d bytes",
		unsafe.Sizeof(Pair{}), unsafe.Sizeof(Permit{}), unsafe.Sizeof(Breaker{}), len(newStripes()), unsafe.Sizeof(stripe{}))
}

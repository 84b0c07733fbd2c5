package picker

import (
	"math"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
)

func TestEndpointLoad(t *testing.T) {
	e := NewEndpoint("a")
	assert.Equal(t, "a", e.ID())
	e.Begin(100, Home)
	e.Begin(maxTokens, Replica)
	assert.Equal(t, 2, e.InFlight())
	assert.EqualValues(t, 100+maxTokens, e.CostInFlight())
	e.End(100)
	assert.Equal(t, 1, e.InFlight())
	assert.EqualValues(t, maxTokens, e.CostInFlight())
	assert.EqualValues(t, 1, e.Picks(Home), "the call has been")

	e.Unpick(maxTokens, Replica)
	assert.Zero(t, e.InFlight())
	assert.Zero(t, e.CostInFlight())
	assert.Zero(t, e.Picks(Replica), "the call never was")

	// A hundred thousand calls of the largest cost stay apart from their number.
	for range 100_000 {
		e.Begin(maxTokens, Home)
	}
	assert.Equal(t, 100_000, e.InFlight())
	assert.EqualValues(t, 100_000*maxTokens, e.CostInFlight())
}

func TestEndpointConcurrently(t *testing.T) {
	e := NewEndpoint("a")
	var group sync.WaitGroup
	for g := range 4 {
		group.Go(func() {
			for i := range 1000 {
				cost := uint32(g*1000 + i)
				e.Begin(cost, Home)
				e.Observe(int64(i), time.Duration(1+i))
				e.latencyToward(1, int64(i))
				e.End(cost)
			}
		})
	}
	group.Wait()
	assert.Zero(t, e.InFlight())
	assert.Zero(t, e.CostInFlight())
	assert.EqualValues(t, 4000, e.Picks(Home))
	assert.True(t, e.Latency() >= 1 && e.Latency() <= 1000, "%v", e.Latency())
}

func TestEndpointDoesNotAllocate(t *testing.T) {
	e := NewEndpoint("a")
	now := int64(0)
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		now++
		e.Begin(1, Home)
		e.Observe(now, time.Second)
		e.End(1)
	}))
}

// The memory that a fleet of a thousand endpoints takes beyond its ring is counted in kilobytes.
func TestEndpointSize(t *testing.T) {
	assert.LessOrEqual(t, int(unsafe.Sizeof(Endpoint{})), 1536)
}

// With a thousand endpoints they are seldom in the fastest cache: a pick is to read two lines of each, and calls are to write the second one only.
func TestPicksReadTwoCacheLinesOfAnEndpoint(t *testing.T) {
	e := NewEndpoint("a")
	line := func(field unsafe.Pointer) int {
		begin := uintptr(unsafe.Pointer(e))
		return int((begin%64 + uintptr(field) - begin) / 64)
	}
	assert.Equal(t, 0, line(unsafe.Pointer(&e.breaker)))
	assert.Equal(t, 0, line(unsafe.Pointer(&e.faulty)))
	assert.Equal(t, 1, line(unsafe.Pointer(&e.load)))
	assert.Equal(t, 1, line(unsafe.Pointer(&e.facts.workers)))
}

func TestLatencyFollowsPeaks(t *testing.T) {
	e := NewEndpoint("a")
	assert.Zero(t, e.Latency())
	at := func(d time.Duration) int64 { return int64(d) }

	e.Observe(at(0), 200*ms)
	assert.Equal(t, float64(200*ms), e.Latency(), "the first counts in full")
	e.Observe(at(time.Second), 400*ms)
	assert.Equal(t, float64(400*ms), e.Latency(), "and so does a longer one")
	e.Observe(at(time.Second), 10*ms)
	assert.Equal(t, float64(400*ms), e.Latency(), "a shorter one not at once")
	e.Observe(at(2*time.Second), 10*ms)
	assert.InEpsilon(t, float64(10*ms)+float64(390*ms)/math.E, e.Latency(), 1e-9, "but in proportion to time")
	e.Observe(at(time.Minute), 10*ms)
	assert.InEpsilon(t, float64(10*ms), e.Latency(), 1e-6, "and in full in the end")
	e.Observe(at(0), 5*ms)
	assert.InEpsilon(t, float64(10*ms), e.Latency(), 1e-6, "time that goes back is no time")
}

// The time constant is ten latencies, from 100 ms on a second, and from a second on one latency.
func TestLatencyDecay(t *testing.T) {
	for latency, constant := range map[time.Duration]time.Duration{
		ms:               10 * ms,
		50 * ms:          500 * ms,
		100 * ms:         time.Second,
		500 * ms:         time.Second,
		time.Second:      time.Second,
		30 * time.Second: 30 * time.Second,
	} {
		e := NewEndpoint("a")
		e.Observe(0, latency)
		base := float64(latency) / 2
		assert.InEpsilon(t, base+base/math.E, e.latencyToward(base, int64(constant)), 1e-9, "%v", latency)
	}
}

func TestLatencyToward(t *testing.T) {
	e := NewEndpoint("a")
	e.Observe(0, 100*ms)
	for _, now := range []int64{-1, 0, 1, int64(time.Second), int64(time.Hour)} {
		assert.Equal(t, float64(100*ms), e.latencyToward(float64(200*ms), now), "what is fast does not become slower")
		v := e.latencyToward(float64(10*ms), now)
		assert.True(t, float64(10*ms) <= v && v <= float64(100*ms), "%v", v)
	}
	assert.InDelta(t, float64(10*ms), e.latencyToward(float64(10*ms), int64(time.Hour)), 1)
	assert.Equal(t, float64(100*ms), e.Latency(), "and nothing is changed by looking")
}

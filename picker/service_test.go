package picker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mlbalancer/mlbalancer/health"
)

// Before anything is known of models, what a load takes says how long a call may.
func TestServiceThatNobodyKnows(t *testing.T) {
	t.Parallel()
	f := newSessionFleet(1)
	service := func() time.Duration {
		own, mean := f.guard.services(f.Table, nil, &Query{})
		assert.Equal(t, own, mean)
		return time.Duration(mean)
	}
	assert.Equal(t, 250*time.Millisecond, service())
	for load, want := range map[time.Duration]time.Duration{
		250 * time.Millisecond: 12500 * time.Microsecond, 5 * time.Second: 250 * time.Millisecond, time.Minute: 250 * time.Millisecond,
	} {
		f.guard.Report(f.Member(0).Endpoint, 0, f.now, &health.Report{Load: health.Load{Has: health.HasLoadTime, LoadTime: load}})
		assert.Equal(t, want, service(), "a load of %v", load)
	}
	v := visit{endpoint: f.Member(0).Endpoint, guard: f.guard, modelID: "m", key: Key("m"), expect: int64(time.Second)}
	v.learn(f.now, 40*time.Millisecond)
	assert.Equal(t, 40*time.Millisecond, service(), "the first answer counts, whether it is sampled or not")
}

// One slow call may be chance; two in a row are believed, and ordinary ones make up for them.
func TestDragFollowsTwoInARow(t *testing.T) {
	t.Parallel()
	const memory, service = 15e9, 250e6
	now := int64(time.Hour)
	var d drag
	next := func(ratio float64) float64 {
		now += int64(100 * time.Millisecond)
		d.observe(now, ratio, memory)
		return d.factor(now, service)
	}
	assert.Equal(t, 1.0, next(1))
	assert.Less(t, next(5), 1.7)
	assert.Equal(t, 1.0, next(1), "it was chance")
	assert.Less(t, next(8), 2.6)
	assert.InDelta(t, 5.0, next(5), 1e-9, "the lesser of two")
	assert.InDelta(t, 10.0, next(12), 5, "and up from there")
	for range 20 {
		next(1)
	}
	assert.Equal(t, 1.0, next(1))

	next(10)
	next(10)
	at := now
	assert.InDelta(t, 10, d.factor(at, service), 0.01)
	assert.InDelta(t, 1+9/2.718, d.factor(at+15e9, service), 0.02, "of calls of 250 ms it is forgotten in 15 s")
	assert.InDelta(t, 1+9/2.718, d.factor(at+1.5e9, 25e6), 0.02, "of calls of 25 ms in 1.5 s")
	assert.Equal(t, 1.0, d.factor(at+60e9, service))
}

package health

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// What the end of a call does allocates nothing, and neither does an update.
func TestNoAllocations(t *testing.T) {
	var b Baseline
	var v Vitals
	var s Score
	c := DefaultConfig()
	r := newRand(1)
	now := second
	assert.Zero(t, testing.AllocsPerRun(2000, func() {
		now += second / 4
		v.Success(b.Observe(now, millisecond*lognormal(r, 0.8)))
		v.Failure()
		v.Served()
		s.Update(now, &c, &v, LoadView{MemoryFree: 0.5, MemoryFreeAt: now, OwnInFlight: 1})
	}))
	assert.True(t, s.Parts().Errors.Known)
}

// BenchmarkCallEnd is what the end of a successful call costs.
func BenchmarkCallEnd(b *testing.B) {
	var base Baseline
	var v Vitals
	r := newRand(1)
	var took [1024]float64
	for i := range took {
		took[i] = 40 * millisecond * lognormal(r, 0.8)
	}
	now := int64(0)
	b.ReportAllocs()
	for b.Loop() {
		now += 1000
		v.Success(base.Observe(now, took[now/1000%1024]))
	}
}

func BenchmarkBaselineObserve(b *testing.B) {
	var base Baseline
	now := int64(0)
	b.ReportAllocs()
	for b.Loop() {
		now += 1000
		base.Observe(now, millisecond)
	}
}

func BenchmarkVitalsSuccess(b *testing.B) {
	var v Vitals
	b.ReportAllocs()
	for b.Loop() {
		v.Success(1.3)
	}
}

func BenchmarkScoreUpdate(b *testing.B) {
	var v Vitals
	var s Score
	c := DefaultConfig()
	now := second
	b.ReportAllocs()
	for b.Loop() {
		now += second
		v.Success(1.3)
		s.Update(now, &c, &v, LoadView{MemoryFree: 0.5, MemoryFreeAt: now})
	}
}

package health

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const millisecond = float64(time.Millisecond)

// A learner is a Baseline with a clock.
type learner struct {
	Baseline
	now int64
}

// calls lets n calls end, every so often, and returns how long after the baseline the last one took.
func (l *learner) calls(n int, every time.Duration, took func() float64) (ratio float64) {
	for range n {
		l.now += int64(every)
		ratio = l.Observe(l.now, took())
	}
	return ratio
}

// noisy returns calls that take a mean of mean nanoseconds.
func noisy(seed uint64, mean, cv float64) func() float64 {
	r := newRand(seed)
	return func() float64 { return mean * lognormal(r, cv) }
}

func steady(took float64) func() float64 { return func() float64 { return took } }

func TestBaselineLearnsTheFirstCalls(t *testing.T) {
	t.Parallel()
	var l learner
	for range 8 {
		assert.Zero(t, l.Value())
		require.Equal(t, 1.0, l.calls(1, time.Second, steady(10*millisecond)))
	}
	assert.InEpsilon(t, 10*millisecond, l.Value(), 1e-6)
	assert.InEpsilon(t, 3, l.calls(1, time.Second, steady(30*millisecond)), 1e-6)
	assert.InEpsilon(t, 0.5, l.calls(1, time.Second, steady(l.Value()/2)), 1e-6)
}

func TestBaselineIgnoresWhatIsNoTime(t *testing.T) {
	t.Parallel()
	var l learner
	l.calls(1000, time.Second, steady(millisecond))
	before := l.Value()
	for _, took := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1} {
		assert.Equal(t, 1.0, l.calls(1, time.Second, steady(took)), took)
		assert.Equal(t, before, l.Value())
	}
	var extreme learner
	extreme.calls(8, time.Second, steady(0))
	for range 3000 {
		for _, took := range []float64{0, 5e-324, math.MaxFloat64} {
			ratio := extreme.calls(1, time.Hour, steady(took))
			require.True(t, ratio > 0 && ratio <= math.MaxFloat64, ratio)
			require.True(t, extreme.Value() > 0 && extreme.Value() <= math.MaxFloat64, extreme.Value())
		}
	}
}

// Whatever the rate, noise keeps the baseline near 0.98 of the mean, all the time.
func TestBaselineStaysNearTheMean(t *testing.T) {
	t.Parallel()
	for _, every := range []time.Duration{100 * time.Microsecond, 20 * time.Millisecond, time.Second, time.Minute} {
		for seed := range uint64(20) {
			var l learner
			took := noisy(seed, 40*millisecond, 0.8)
			l.calls(256, every, took)
			least, most := l.Value(), l.Value()
			for range 10_000 {
				l.calls(1, every, took)
				least, most = min(least, l.Value()), max(most, l.Value())
			}
			assert.InEpsilon(t, 0.98*40*millisecond, least, 0.15, "every %v, seed %d", every, seed)
			assert.InEpsilon(t, 0.98*40*millisecond, most, 0.15, "every %v, seed %d", every, seed)
		}
	}
}

// Times may be spread much wider than usual: the baseline is then below the mean, and seldom learns
// anew without reason.
func TestBaselineIsSteadyWhereTimesVaryMuch(t *testing.T) {
	t.Parallel()
	unsteady := 0
	for seed := range uint64(20) {
		var l learner
		took := noisy(seed, 40*millisecond, 2)
		l.calls(1000, 20*time.Millisecond, took)
		least, most := l.Value(), l.Value()
		for range 10_000 {
			l.calls(1, 20*time.Millisecond, took)
			least, most = min(least, l.Value()), max(most, l.Value())
		}
		if most/least > 1.25 {
			unsteady++
		}
		assert.Greater(t, least, 0.4*40*millisecond, "seed %d", seed)
		assert.Less(t, most, 40*millisecond, "seed %d", seed)
	}
	assert.LessOrEqual(t, unsteady, 2)
}

func TestBaselineForgetsAColdFirstCall(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		var l learner
		l.calls(1, time.Second, steady(800*millisecond))
		took := noisy(seed, 40*millisecond, 0.3)
		l.calls(7, time.Second, took)
		assert.Less(t, l.Value(), 1.8*40*millisecond, "seed %d", seed)
		l.calls(92, time.Second, took)
		assert.InEpsilon(t, 40*millisecond, l.Value(), 0.15, "seed %d", seed)
	}
}

// A first call that was much faster than usual, as one with an empty input is, is forgotten as well.
func TestBaselineForgetsATrivialFirstCall(t *testing.T) {
	t.Parallel()
	var l learner
	l.calls(1, time.Second, steady(40*millisecond/1000))
	took := noisy(1, 40*millisecond, 0.8)
	l.calls(256, time.Second, took)
	assert.InEpsilon(t, 40*millisecond, l.Value(), 0.2)
}

func TestBaselineIsNotDraggedAlong(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		warm  int
		every time.Duration
		slow  func(minute float64) float64
	}{
		"ten times":          {5000, 20 * time.Millisecond, func(float64) float64 { return 10 }},
		"ten times, busy":    {5000, time.Millisecond, func(float64) float64 { return 10 }},
		"ten times, rare":    {5000, 10 * time.Second, func(float64) float64 { return 10 }},
		"twice":              {5000, 20 * time.Millisecond, func(float64) float64 { return 2 }},
		"three times":        {5000, 20 * time.Millisecond, func(float64) float64 { return 3 }},
		"creeping":           {5000, 20 * time.Millisecond, func(minute float64) float64 { return 1 + minute }},
		"as slow as a crash": {5000, 20 * time.Millisecond, func(float64) float64 { return 1e6 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var l learner
			took := noisy(1, 40*millisecond, 0.8)
			l.calls(tt.warm, tt.every, took)
			before, start := l.Value(), l.now
			for l.now-start < int64(10*time.Minute) {
				minute := time.Duration(l.now - start).Minutes()
				l.calls(1, tt.every, func() float64 { return tt.slow(minute) * took() })
			}
			assert.Less(t, l.Value()/before, 1.25)
			assert.Greater(t, l.Value()/before, 0.9)
		})
	}
}

func TestBaselineAcceptsASlowerModelAfterHours(t *testing.T) {
	t.Parallel()
	var l learner
	l.calls(1000, time.Second, noisy(1, 40*millisecond, 0.8))
	slower := noisy(2, 200*millisecond, 0.8)
	l.calls(3600, time.Second, slower)
	assert.Less(t, l.Value(), 130*millisecond)
	l.calls(4*3600, time.Second, slower)
	assert.InEpsilon(t, 200*millisecond, l.Value(), 0.15)
}

func TestBaselineLearnsAFasterModelSoon(t *testing.T) {
	t.Parallel()
	for _, cv := range []float64{0, 0.3, 0.8} {
		for seed := range uint64(20) {
			var l learner
			l.calls(10_000, 20*time.Millisecond, noisy(seed, 120*millisecond, cv))
			l.calls(100, 20*time.Millisecond, noisy(seed+100, 40*millisecond, cv))
			assert.InEpsilon(t, 40*millisecond, l.Value(), 0.3, "cv %v, seed %d", cv, seed)
			l.calls(300, 20*time.Millisecond, noisy(seed+200, 40*millisecond, cv))
			assert.InEpsilon(t, 40*millisecond, l.Value(), 0.15, "cv %v, seed %d", cv, seed)
		}
	}
}

// An incident among the first some hundred calls does drag it along until it is seen to be one, but most of that is soon undone.
func TestBaselineIsYoung(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		var l learner
		l.calls(100, 20*time.Millisecond, noisy(seed, 40*millisecond, 0.8))
		l.calls(30_000, 20*time.Millisecond, noisy(seed+100, 400*millisecond, 0.8))
		assert.Less(t, l.Value(), 3*40*millisecond, "seed %d", seed)
		l.calls(300, 20*time.Millisecond, noisy(seed+200, 40*millisecond, 0.8))
		assert.Less(t, l.Value(), 1.6*40*millisecond, "seed %d", seed)
	}
}

// When an incident is over in which a baseline was learned, the baseline is soon that of before it.
func TestBaselineLearnedInAnIncident(t *testing.T) {
	t.Parallel()
	var l learner
	l.calls(1000, 20*time.Millisecond, noisy(1, 400*millisecond, 0.8))
	l.calls(300, 20*time.Millisecond, noisy(2, 40*millisecond, 0.8))
	assert.InEpsilon(t, 40*millisecond, l.Value(), 0.2)
}

func TestEstimateSurvivesPacking(t *testing.T) {
	t.Parallel()
	for _, e := range []estimate{
		{},
		{mean: 1, recent: 1, calls: 1},
		{mean: mostTook, recent: cutRatio, calls: settledCalls},
		{mean: leastTook, recent: 0.6, calls: 9},
	} {
		got := unpackEstimate(e.pack())
		assert.InDelta(t, e.mean, got.mean, e.mean*1e-7)
		assert.InDelta(t, e.recent, got.recent, 1e-6)
		assert.Equal(t, e.calls, got.calls)
	}
}

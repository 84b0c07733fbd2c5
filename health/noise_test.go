package health

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A model is called on a server, and its baseline learned from that.
type modelOn struct {
	*server
	baseline Baseline
}

// serve lets some seconds pass, with 40 calls a second.
func (m *modelOn) serve(seconds float64, took func() float64) {
	m.run(seconds, 40, func() { m.v.Success(m.baseline.Observe(m.now, took())) })
}

// What schedulers do to calls must not show where models take less time than that: a caller that is busy is not a server that is slow.
func TestScoreHasNoEarForNoise(t *testing.T) {
	t.Parallel()
	for _, usual := range []float64{0.05, 0.2, 0.8, 2} {
		m := &modelOn{server: newServer()}
		took := noisy(1, usual*millisecond, 0.3)
		m.serve(60, took)
		require.InDelta(t, 1, m.s.Value(), 0.01, "%v ms", usual)
		for range 60 {
			m.serve(1, func() float64 { // one of ten waits for another to leave its processor
				if m.rand.IntN(10) == 0 {
					return took() + 10*millisecond*m.rand.Float64()
				}
				return took()
			})
			require.Greater(t, m.s.Value(), 0.9, "%v ms", usual)
		}
		assert.Empty(t, m.flips, "%v ms", usual)
		m.serve(20, func() float64 { return 40*took() + 100*millisecond })
		assert.Less(t, m.s.Value(), 0.1, "what is no noise is heard, %v ms", usual)
		assert.False(t, m.s.Healthy(), "%v ms", usual)
	}
}

// A call that takes longer never looks like a shorter one, however fast its model is.
func TestBaselineRatioIsMonotone(t *testing.T) {
	t.Parallel()
	r := newRand(1)
	for range 1000 {
		var b, other Baseline
		usual := math.Exp(r.Float64()*20) * 10 // from 10 ns to 5 s
		for i := range 20 {
			b.Observe(int64(i)*second, usual)
			other.Observe(int64(i)*second, usual)
		}
		took := usual * math.Exp(10*r.Float64()-5)
		shorter, longer := b.Observe(20*second, took), other.Observe(20*second, took*(1+r.Float64()))
		require.GreaterOrEqual(t, longer, shorter)
		require.True(t, shorter > 0 && longer <= math.MaxFloat64)
		require.LessOrEqual(t, longer, took*2/usual*(1+1e-6), "the floor lowers it")
		if usual >= float64(3*time.Millisecond) {
			require.InEpsilon(t, took/usual, shorter, 1e-3, "and only that of fast models")
		}
	}
}

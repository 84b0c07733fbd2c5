package stats

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const ms = time.Millisecond

func upTo(n int) []time.Duration {
	d := make([]time.Duration, n)
	for i := range d {
		d[i] = time.Duration(i+1) * ms
	}
	return d
}

func TestPercentile(t *testing.T) {
	for _, c := range []struct {
		n    int
		p    float64
		want time.Duration
	}{
		{0, .99, 0}, {1, 0, 1}, {1, .5, 1}, {1, 1, 1}, {2, .5, 1}, {2, .51, 2}, {3, .5, 2},
		{100, .5, 50}, {100, .95, 95}, {100, .99, 99}, {100, .999, 100}, {100, 1, 100}, {100, 0, 1},
		{1000, .99, 990}, {1000, .999, 999}, {15000, .999, 14985},
	} {
		assert.Equal(t, c.want*ms, Percentile(upTo(c.n), c.p), "n=%d p=%v", c.n, c.p)
	}
}

func TestOf(t *testing.T) {
	var samples []Sample
	for _, d := range upTo(98) {
		samples = append(samples, Sample{Latency: d, Late: ms})
	}
	samples = append(samples, Sample{Latency: 30 * time.Second, Code: "DeadlineExceeded"}, Sample{Latency: 30 * time.Second, Code: "Unavailable", Late: 5 * ms})
	got := Of(samples, []Server{
		{Calls: 60, Hits: 50, Loads: 3, Busy: 30 * time.Second},
		{Calls: 40, Hits: 40, Loads: 1, Busy: 10 * time.Second},
		{},
	})
	assert.Equal(t, Figures{
		Calls: 100, Errors: 2, ErrorCodes: map[string]int{"DeadlineExceeded": 1, "Unavailable": 1}, ErrorTexts: map[string]int{"DeadlineExceeded: ": 1, "Unavailable: ": 1},
		P50: 50, P95: 95, P99: 30000, P999: 30000, Mean: (98*99/2 + 60000) / 100.,
		ColdLoads: 4, HitRate: .9, PeakToMeanLoad: 2.25, LateP99: 1,
	}, got)
}

func TestOfNothing(t *testing.T) {
	assert.Equal(t, Figures{}, Of(nil, nil))
	assert.Equal(t, Figures{}, Of(nil, []Server{{}}))
}

func TestMedian(t *testing.T) {
	runs := []Figures{
		{Calls: 10, Errors: 5, P50: 3, P99: 1, HitRate: .5, ErrorCodes: map[string]int{"Unavailable": 5}},
		{Calls: 10, Errors: 1, P50: 1, P99: 9, HitRate: .7, ErrorCodes: map[string]int{"Internal": 1}},
		{Calls: 10, Errors: 3, P50: 2, P99: 5, HitRate: .6, ErrorCodes: map[string]int{"Unavailable": 2, "Internal": 1}},
	}
	assert.Equal(t, runs[0], Median(runs[:1]))
	assert.Equal(t, Figures{Calls: 10, Errors: 3, P50: 2, P99: 5, HitRate: .6,
		ErrorCodes: map[string]int{"Unavailable": 2, "Internal": 1}}, Median(runs))
	two := Median(runs[:2])
	assert.Equal(t, 3, two.Errors)
	assert.Equal(t, 5., two.P99)
	assert.Nil(t, Median([]Figures{{Calls: 1}}).ErrorCodes)
}

func TestExceedance(t *testing.T) {
	var samples []Sample
	for _, d := range upTo(1000) {
		samples = append(samples, Sample{Latency: d})
	}
	curve := Exceedance(samples, 50)
	require.NotEmpty(t, curve)
	assert.LessOrEqual(t, len(curve), 50)
	assert.Equal(t, Point{X: .001, Y: 1}, curve[0])
	assert.Equal(t, Point{X: 1, Y: .001}, curve[len(curve)-1])
	for i := range curve {
		assert.InDelta(t, 1.001-curve[i].X, curve[i].Y, 1e-9, "the share that takes at least x of 1 ms to 1 s in steps of 1 ms")
		if i > 0 {
			assert.Greater(t, curve[i].X, curve[i-1].X)
		}
	}
	assert.Nil(t, Exceedance(nil, 10))
	assert.Equal(t, []Point{{X: 1, Y: 1}}, Exceedance([]Sample{{Latency: time.Second}}, 10))
}

func TestP99Series(t *testing.T) {
	var samples []Sample
	for i := range 100 {
		samples = append(samples, Sample{At: 10 * time.Second, Latency: time.Duration(i+1) * ms})
	}
	samples = append(samples, Sample{At: 19*time.Second + 999*ms, Latency: time.Second}, Sample{At: 20 * time.Second, Latency: time.Hour})
	assert.Equal(t, []Point{{X: 1, Y: .099}, {X: 9, Y: 1}}, P99Series(samples, 10*time.Second, 20*time.Second, 5))
}

package sim

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestFoldPoolsLatenciesAndSumsLoads(t *testing.T) {
	t.Parallel()
	sc := small()
	a := &Result{Latencies: []float32{3, 1}, Starts: []float32{0, 39}, Errors: 1, Loads: 2, Cold: 1}
	b := &Result{Latencies: []float32{2, 30}, Starts: []float32{1, 38}, Errors: 1, Loads: 5, Extra: 3, Refused: 1}
	f := Fold(&sc, []*Result{a, b})
	assert.Equal(t, 4, f.Calls)
	assert.Equal(t, 2, f.Errors)
	assert.Equal(t, 50., f.ErrorPercent)
	assert.Equal(t, 7, f.Loads)
	assert.Equal(t, []int{2, 5}, f.LoadsBySeed)
	assert.Equal(t, []float64{3, 30}, f.P99BySeed)
	assert.Equal(t, 3., f.P50)
	assert.Equal(t, 30., f.P999)
	assert.Equal(t, 9., f.Mean)
	assert.Equal(t, 25., f.ColdPercent)
	assert.Equal(t, 3, f.Retries)
	assert.Equal(t, []float32{3, 1}, a.Latencies, "results are left as they are")
	assert.Equal(t, Point{X: 30, Y: .001}, f.Exceedance[len(f.Exceedance)-1])
	assert.Len(t, f.OverTime, 4)
	assert.Zero(t, f.GoodputPercent)
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	assert.Zero(t, Quantile(nil, .5))
	v := []float32{1, 2, 3, 4}
	for q, want := range map[float64]float64{0: 1, .25: 2, .5: 3, .99: 4, 1: 4} {
		assert.Equal(t, want, Quantile(v, q))
	}
}

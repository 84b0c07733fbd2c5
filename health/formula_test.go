package health

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func known(v float64) Part { return Part{Value: v, Known: true} }

func TestScoreFormula(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		parts Parts
		want  float64
	}{
		"nothing known":                {Parts{}, 1},
		"all is well":                  {Parts{known(1), known(1), known(1), known(1)}, 1},
		"nothing is":                   {Parts{known(0), known(0), known(0), known(0)}, 0},
		"weighed":                      {Parts{known(0.5), known(0.8), known(0.1), known(0.9)}, 0.2 + 0.24 + 0.02 + 0.09},
		"no memory left":               {Parts{known(1), known(1), known(0), known(1)}, 0.8},
		"too many connections":         {Parts{known(1), known(1), known(1), known(0)}, 0.9},
		"both":                         {Parts{known(1), known(1), known(0), known(0)}, 0.7},
		"without latency":              {Parts{known(0.5), Part{}, known(1), known(1)}, (0.4*0.5 + 0.2 + 0.1) / 0.7},
		"without memory":               {Parts{known(0.5), known(1), Part{}, known(1)}, (0.4*0.5 + 0.3 + 0.1) / 0.8},
		"errors only":                  {Parts{Errors: known(0.5)}, 0.5},
		"memory only":                  {Parts{GPUMemory: known(0.3)}, 0.3},
		"errors at the pull":           {Parts{known(0.25), known(1), known(1), known(1)}, 0.7},
		"errors below it":              {Parts{known(0.125), known(1), known(1), known(1)}, (0.4*0.125 + 0.6) / 2},
		"everything fails":             {Parts{known(0), known(1), known(1), known(1)}, 0},
		"twenty times slow":            {Parts{known(1), known(0.05), known(1), known(1)}, (0.7 + 0.3*0.05) / 5},
		"the worse of the two pulls":   {Parts{known(0.125), known(0.05), known(1), known(1)}, (0.4*0.125 + 0.3*0.05 + 0.3) / 5},
		"memory and connections don't": {Parts{known(1), known(1), known(0.01), known(0.01)}, 0.7 + 0.3*0.01},
	} {
		c := DefaultConfig()
		assert.InDelta(t, tt.want, c.Weights.score(&tt.parts), 1e-12, name)
	}
}

func TestScoreLeavesOutWhatHasNoWeight(t *testing.T) {
	t.Parallel()
	w := Weights{Latency: 1, GPUMemory: 1}
	assert.Equal(t, 0.75, w.score(&Parts{Errors: known(0), Latency: known(1), GPUMemory: known(0.5)}), "errors do not pull")
	assert.Equal(t, 1.0, w.score(&Parts{Errors: known(0), Connections: known(0)}))
}

// A part that gets better never makes the score worse, and the score is from 0 to 1, whatever the weights.
func TestScoreIsMonotone(t *testing.T) {
	t.Parallel()
	r := newRand(1)
	parts := func(p *Parts) [4]*Part { return [...]*Part{&p.Errors, &p.Latency, &p.GPUMemory, &p.Connections} }
	for range 20_000 {
		var w Weights
		for _, x := range [...]*float64{&w.Errors, &w.Latency, &w.GPUMemory, &w.Connections} {
			*x = maxWeight * r.Float64() * float64(r.IntN(4))
		}
		var p Parts
		for _, x := range parts(&p) {
			if r.IntN(4) > 0 {
				*x = known(r.Float64())
			}
		}
		before := w.score(&p)
		require.True(t, before >= 0 && before <= 1, "%v of %+v %+v", before, w, p)
		if x := parts(&p)[r.IntN(4)]; x.Known {
			x.Value += (1 - x.Value) * r.Float64()
			require.GreaterOrEqual(t, w.score(&p), before-1e-12, "%+v %+v", w, p)
		}
	}
}

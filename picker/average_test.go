package picker

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDecayed(t *testing.T) {
	t.Parallel()
	for _, x := range []float64{math.Inf(-1), -1, 0} {
		assert.InDelta(t, 1, decayed(x), 0, "%g", x)
	}
	for x := 1e-9; x <= 30; x *= 1.0003 {
		require.InEpsilon(t, math.Exp(-x), decayed(x), 4e-11, "%g", x)
	}
	for _, x := range []float64{30.01, 1e300, math.Inf(1)} {
		assert.Zero(t, decayed(x), "%g", x)
	}
	assert.True(t, math.IsNaN(decayed(math.NaN())))
}

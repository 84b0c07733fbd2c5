package health

import (
	"math"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestVitalsAreSmall(t *testing.T) {
	t.Parallel()
	assert.LessOrEqual(t, unsafe.Sizeof(Vitals{}), uintptr(192))
	assert.Equal(t, uintptr(16), unsafe.Sizeof(Baseline{}))
}

// Each bucket begins where bucketStart says, ends where the next one begins, and is a quarter of its start wide at most.
func TestBuckets(t *testing.T) {
	t.Parallel()
	assert.Equal(t, 0.25, bucketStart(0))
	assert.Equal(t, 1.0, bucketStart(8))
	assert.Equal(t, 1.25, bucketStart(9))
	assert.Equal(t, 224.0, bucketStart(buckets-1))
	for i := range buckets {
		start, end := bucketStart(i), bucketStart(i+1)
		require.Equal(t, i, bucketOf(start), "start of %d", i)
		require.Equal(t, i, bucketOf(math.Nextafter(end, 0)), "end of %d", i)
		require.LessOrEqual(t, end/start, 1.25)
	}
	for ratio, want := range map[float64]int{
		0: 0, math.Copysign(0, -1): 0, 5e-324: 0, 0.1: 0, 256: buckets - 1, 1e9: buckets - 1, math.MaxFloat64: buckets - 1,
	} {
		assert.Equal(t, want, bucketOf(ratio), ratio)
	}
}

func TestVitalsCount(t *testing.T) {
	t.Parallel()
	var v Vitals
	v.Success(1.1)
	v.Success(1.2)
	v.Failure()
	v.Served()
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1} {
		v.Success(bad)
	}
	assert.EqualValues(t, 2, v.ratios[8].Load())
	assert.EqualValues(t, 1, v.failures.Load())
	assert.EqualValues(t, 5, v.served.Load(), "a ratio that is none is an answer nevertheless")
	sum := uint32(0)
	for i := range v.ratios {
		sum += v.ratios[i].Load()
	}
	assert.EqualValues(t, 2, sum)
}

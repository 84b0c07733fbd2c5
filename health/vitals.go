package health

import (
	"math"
	"sync/atomic"
)

// Vitals counts how the calls of one endpoint end, for the Score that reads it. Each method is one atomic addition. The zero
// value is ready. It must not be copied, and may be used from any number of goroutines. The counts wrap around: a reader takes
// differences.
type Vitals struct {
	ratios   [buckets]atomic.Uint32
	served   atomic.Uint32
	failures atomic.Uint32
}

// The buckets of the ratios are quarters of octaves from 1/4 to 256, each a quarter of its octave's beginning wide. Ratios
// below and above are in the first and the last one.
const (
	buckets    = 40
	leastRatio = 1.0 / 4
	pastRatio  = 256
	// bucketShift leaves of a float64 its exponent and the first two bits of its mantissa: octaves and their quarters.
	bucketShift = 52 - 2
)

// firstBucket is what bucketShift leaves of leastRatio.
var firstBucket = math.Float64bits(leastRatio) >> bucketShift

// bucketOf returns the bucket of a ratio, which is not negative.
func bucketOf(ratio float64) int {
	switch {
	case ratio < leastRatio:
		return 0
	case ratio >= pastRatio:
		return buckets - 1
	}
	return int(math.Float64bits(ratio)>>bucketShift - firstBucket)
}

// bucketStart returns the least ratio of a bucket.
func bucketStart(i int) float64 {
	return math.Float64frombits((uint64(i) + firstBucket) << bucketShift)
}

// Success counts a call that was answered in ratio times its baseline. Where that is negative, NaN or infinite it is Served.
func (v *Vitals) Success(ratio float64) {
	if !(ratio >= 0 && ratio <= math.MaxFloat64) {
		v.Served()
		return
	}
	v.ratios[bucketOf(ratio)].Add(1)
}

// Served counts a call that was answered, of which it is not known how long that should take.
func (v *Vitals) Served() { v.served.Add(1) }

// Failure counts a call that failed.
func (v *Vitals) Failure() { v.failures.Add(1) }

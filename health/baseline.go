package health

import (
	"math"
	"sync/atomic"
	"time"
)

// Baseline is how long a model usually takes on an endpoint, learned from its calls. The first 8 calls give it their geometric
// mean, in which one call that waited for the model to be loaded weighs little. The next some 250 give it the mean of their
// times, each cut at 4 times the baseline: 98 % of the true mean where times are lognormal with a coefficient of variation of
// 0.8. From then on it moves with a time constant of an hour, or more where calls are more than 15 s apart: an incident of
// minutes does not drag it along, and a model that has become slower for good is accepted after hours. But where calls lately
// took less than 0.6 of it, it falls to that at once and learns anew.
//
// The zero value is ready. It must not be copied, and may be used from any number of goroutines.
type Baseline struct {
	word atomic.Uint64 // an estimate; 0 before the first observation
	tick atomic.Int64  // when a settled estimate was last moved
}

// estimate is what the word of a Baseline holds.
type estimate struct {
	mean   float64 // in a float32
	recent float64 // mean of the latest ratios to the mean, each at most cutRatio; in 24 bits, as a multiple of 1/recentUnit
	calls  uint64  // that the mean was learned from, at most settledCalls; in 8 bits
}

const (
	// learningCalls are needed for a mean to be one.
	learningCalls = 8
	// youngCalls are needed for a mean to be trusted so far that calls of twice as long are an incident and not a mistake of
	// the mean: with as many, its standard error is 9 % at a coefficient of variation of 0.8.
	youngCalls = 64
	// settledCalls end the mean's dependence on single calls.
	settledCalls = 255
	// recentCalls are the calls that recent reaches back: enough for a recent below fallenRatio to be five of its standard
	// deviations away at a coefficient of variation of 0.8, and few enough for a model of three times the speed to be learned
	// in 100 calls.
	recentCalls = 48

	cutRatio      = 4.0
	incidentRatio = 2.0
	fallenRatio   = 0.6

	recentUnit = 1 << 21 // cutRatio times it fits into 24 bits

	settledTime = time.Hour
	leastTick   = time.Second
	mostTick    = 15 * time.Second

	// leastBaseline is the least that calls are compared with, in nanoseconds. A process that has more to do than processors may keep a
	// call waiting for 10 ms, the slice after which Go's scheduler takes a processor away (forcePreemptNS; Linux's own are 3 ms), and
	// that says nothing of the server. A 99th percentile of normalTail times this much is still normal.
	leastBaseline = 10e6 / normalTail

	// leastTook and mostTook hold times within what a float32 can hold and divide.
	leastTook, mostTook = 1e-3, 1e18
)

func unpackEstimate(w uint64) estimate {
	return estimate{
		mean:   float64(math.Float32frombits(uint32(w >> 32))),
		recent: float64(int64(w>>8&(1<<24-1))) / recentUnit,
		calls:  w & 0xff,
	}
}

func (e estimate) pack() uint64 {
	return uint64(math.Float32bits(float32(e.mean)))<<32 | uint64(int64(e.recent*recentUnit))<<8 | e.calls
}

// Value returns the baseline in nanoseconds, or 0 during the first 8 calls.
func (b *Baseline) Value() float64 {
	e := unpackEstimate(b.word.Load())
	if e.calls < learningCalls {
		return 0
	}
	return e.mean
}

// Observe takes in that a successful call that ended at now took as many nanoseconds, and returns how many times as long as the
// baseline that is, or as 2.5 ms where the baseline is less: what a busy machine adds to a call must not count. It returns 1 during
// the first 8 calls. A time that is negative, NaN or infinite is ignored, and the result is 1. Of
// calls that end at the very same moment, one or more may be left out of the baseline.
func (b *Baseline) Observe(now int64, took float64) (ratio float64) {
	if !(took >= 0 && took <= math.MaxFloat64) {
		return 1
	}
	if took < leastTook || took > mostTook {
		took = min(max(took, leastTook), mostTook)
	}
	old := b.word.Load()
	e := unpackEstimate(old)
	if e.calls < learningCalls {
		b.word.CompareAndSwap(old, e.learn(took).pack())
		return 1
	}
	ratio = took / e.mean
	cut := ratio
	if cut > cutRatio { // a branch that is predicted, where min waits for the division
		cut = cutRatio
	}
	next, settled := e.follow(cut)
	if settled {
		next = next.drift(b.elapsed(now))
	}
	b.word.CompareAndSwap(old, next.pack())
	if e.mean < leastBaseline {
		return took / leastBaseline
	}
	return ratio
}

// learn returns e with one of the first calls in its geometric mean.
func (e estimate) learn(took float64) estimate {
	e.calls++
	if e.calls == 1 {
		return estimate{mean: took, recent: 1, calls: 1}
	}
	e.mean *= math.Pow(took/e.mean, 1/float64(e.calls))
	return e
}

// follow returns e with the ratio of a call to the mean taken in, and whether that left the mean to time.
func (e estimate) follow(ratio float64) (next estimate, settled bool) {
	e.recent += (ratio - e.recent) * (1.0 / recentCalls)
	switch {
	case e.recent < fallenRatio:
		return estimate{mean: e.mean * e.recent, recent: 1, calls: learningCalls}, false
	case e.calls == settledCalls, e.calls >= youngCalls && e.recent > incidentRatio:
		return e, true
	}
	e.calls++
	e.mean *= 1 + (ratio-1)/float64(e.calls)
	return e, false
}

// drift returns e with the mean moved towards the recent calls by as much as the time allows: by a factor of e in an hour at
// most.
func (e estimate) drift(elapsed time.Duration) estimate {
	if elapsed > 0 {
		e.mean *= 1 + (min(e.recent, incidentRatio)-1)*(float64(elapsed)/float64(settledTime))
	}
	return e
}

// elapsed returns the time since the mean was last moved, at most mostTick, and makes that now; 0 if that is less than leastTick.
func (b *Baseline) elapsed(now int64) time.Duration {
	last := b.tick.Load()
	elapsed := time.Duration(now - last)
	if elapsed < leastTick || !b.tick.CompareAndSwap(last, now) {
		return 0
	}
	return min(elapsed, mostTick)
}

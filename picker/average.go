package picker

import (
	"math"
	"sync/atomic"
	"time"
)

// The time constant of a latency estimate is ten times the estimate, so that one slow answer of a fast server is forgotten after
// some tens of its usual ones: with a second for all, a single hiccup of 50 ms among answers of 1 ms takes a server most of
// its calls for five seconds. It is at most a second, so that a server that was slow is found out soon when it no longer is,
// but never less than the estimate: a server whose calls take 30 s is not asked again every second.
const (
	decayLatencies = 10
	maxDecay       = float64(time.Second)
)

// peakEWMA is an exponentially weighted moving average that follows rises at once (the peak EWMA of Finagle's load balancers).
// Its two words are updated one after the other: a reader between them sees a weight that is off by one observation.
type peakEWMA struct {
	bits  atomic.Uint64 // float64, nanoseconds; 0 before the first observation
	stamp atomic.Int64
}

func (p *peakEWMA) value() float64 { return math.Float64frombits(p.bits.Load()) }

// decay returns exp(-age/tau) for an estimate v, in (0, 1].
func (p *peakEWMA) decay(now int64, v float64) float64 {
	return decayed(float64(now-p.stamp.Load()) / max(v, min(decayLatencies*v, maxDecay)))
}

// decayed returns exp(-x), within 4e-11 of it, and 1 for x below 0. It takes half the time of math.Exp, which was a fifth of a pick: exp(-x) is a
// power of 2, whose exponent is counted, times one of its roots, which are kept, times what a few terms of the series give for the rest.
func decayed(x float64) float64 {
	switch {
	case x <= 0:
		return 1
	case x > 30:
		return 0 // 1e-13 of whatever it was
	}
	rounded := x*(rootsOfHalf*math.Log2E) + toInteger
	k := math.Float64bits(rounded) & (1<<12 - 1)           // at most 2770
	rest := x - (rounded-toInteger)*(math.Ln2/rootsOfHalf) // at most .0054 either way
	power := math.Float64frombits(math.Float64bits(halved[k&(rootsOfHalf-1)]) - k>>rootsBits<<mantissaBits)
	return power * (1 - rest + rest*rest*(1./2-rest*(1./6)))
}

const (
	rootsBits    = 6
	rootsOfHalf  = 1 << rootsBits
	mantissaBits = 52 // of a float64
	// toInteger, added to a number, rounds it to an integer, which is then in the last bits of the sum.
	toInteger = 3 << (mantissaBits - 1)
)

// halved holds 2^(-i/64).
var halved = func() (roots [rootsOfHalf]float64) {
	for i := range roots {
		roots[i] = math.Exp2(-float64(i) / rootsOfHalf)
	}
	return roots
}()

func (p *peakEWMA) observe(now int64, x float64) {
	for {
		old := p.bits.Load()
		v := math.Float64frombits(old)
		next := x
		if v > x {
			next = x + (v-x)*p.decay(now, v)
		}
		if p.bits.CompareAndSwap(old, math.Float64bits(next)) {
			p.stamp.Store(now)
			return
		}
	}
}

// workMemory is the time constant of the sums of work: long enough for the shares of rare models to mean something, short enough to
// notice within seconds that a model has become a large part of the traffic.
const workMemory = float64(5 * time.Minute)

// decayingSum is a sum that forgets. Its two words are updated one after the other, like those of peakEWMA.
type decayingSum struct {
	bits  atomic.Uint64 // float64
	stamp atomic.Int64
}

func (s *decayingSum) add(now int64, x float64) {
	for {
		old := s.bits.Load()
		next := math.Float64frombits(old)*s.kept(now) + x
		if s.bits.CompareAndSwap(old, math.Float64bits(next)) {
			s.stamp.Store(now)
			return
		}
	}
}

// at returns the sum as of now.
func (s *decayingSum) at(now int64) float64 {
	return math.Float64frombits(s.bits.Load()) * s.kept(now)
}

// kept returns the part of the sum that is not forgotten since the last addition.
func (s *decayingSum) kept(now int64) float64 {
	return decayed(float64(now-s.stamp.Load()) / workMemory)
}

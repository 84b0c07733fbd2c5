package breaker

import (
	"math"
	"sync/atomic"
)

// The sequential test is Wald's: it adds up, call by call, the logarithm of how much likelier the outcome is of a bad endpoint
// than of one that is like the rest, starting again from 0 whenever the sum falls below (which makes it Page's CUSUM). No other
// test that errs as rarely needs fewer calls. As only failures make the sum grow, it is worked out when one comes.
//
// Before the endpoint is taken for bad, the same test must take the rest of the group for healthy over the same time, and the
// endpoint must be bad beside the rate of that time, too: that is what keeps an incident that strikes all of them from opening
// any, however recent it is. With fewer than five endpoints it takes longer to know the rest, and is less sure.
const (
	// healthyRate is the least failure rate that the rest of a group is credited with; nothing is gained by believing in better
	// ones.
	healthyRate = 0.001
	// badRate is the least failure rate of a bad endpoint; it is badFactor times that of the rest if this is more.
	badRate   = 0.2
	badFactor = 3
	// sickRate is the failure rate of the rest from which on the test says nothing, as the rest is no measure then.
	sickRate = 0.3
	// takeForBad is the sum at which an endpoint is taken for bad: at most one false alarm in e^15 calls, 3 million, and one in
	// 60 million where 0.1 % fail. With the rates above, three failures in 7 calls reach it, and four in 31.
	takeForBad = 15.0
	// takeForHealthy is the sum, below 0, at which the rest is taken for healthy: ln(100), one wrong verdict in as many.
	takeForHealthy = 4.6
)

// weights are what a failure and a success are worth to the test: the one adds, the other subtracts.
type weights struct{ failure, success float64 }

// weightsAt returns the weights where the rest of the group fails at a rate.
func weightsAt(rate float64) weights {
	bad := max(badRate, badFactor*rate)
	return weights{math.Log(bad / rate), math.Log((1 - rate) / (1 - bad))}
}

func (w weights) sum(failures, successes float64) float64 {
	return failures*w.failure - successes*w.success
}

// suspicion is the state of the test: the failures and successes since its sum was 0 last.
type suspicion struct {
	// word holds the epoch (16 bits), the failures (16 bits), and the successes that there had been when it began (32 bits).
	word atomic.Uint64
	// What the group had seen when it began, this breaker's calls included.
	successes, failures atomic.Uint64
}

const (
	suspicionEpochShift = 48
	suspicionFailShift  = 32
	maxSuspicion        = 1<<16 - 1
)

func suspicionWord(epoch uint16, failures, successes uint64) uint64 {
	return uint64(epoch)<<suspicionEpochShift | min(failures, maxSuspicion)<<suspicionFailShift | successes&math.MaxUint32
}

// read returns the failures and successes since the test began, and false if there was no failure in this epoch.
func (s *suspicion) read(word uint64, epoch uint16, successes uint64) (fails, oks float64, ok bool) {
	failures := word >> suspicionFailShift & maxSuspicion
	return float64(failures), float64(uint32(successes) - uint32(word)), uint16(word>>suspicionEpochShift) == epoch && failures > 0
}

// failed adds a failure. successes is how many the breaker has seen.
func (s *suspicion) failed(g *Group, wt weights, epoch uint16, successes uint64, now int64) {
	for {
		old := s.word.Load()
		fails, oks, ok := s.read(old, epoch, successes)
		next := suspicionWord(epoch, 1, successes)
		if ok && wt.sum(fails, oks) > 0 {
			next = suspicionWord(epoch, uint64(fails)+1, uint64(uint32(old)))
		} else {
			groupSuccesses, groupFailures := g.totals(now)
			s.successes.Store(groupSuccesses)
			s.failures.Store(groupFailures)
		}
		if s.word.CompareAndSwap(old, next) {
			return
		}
	}
}

// verdict reports whether the endpoint is bad and the rest is not. rate is the failure rate of the rest of late.
func (s *suspicion) verdict(g *Group, rate float64, epoch uint16, successes uint64, now int64) (Reason, bool) {
	fails, oks, ok := s.read(s.word.Load(), epoch, successes)
	if !ok || weightsAt(rate).sum(fails, oks) < takeForBad {
		return Reason{}, false
	}
	groupSuccesses, groupFailures := g.totals(now)
	restOKs := max(0, float64(int64(groupSuccesses-s.successes.Load()))-oks)
	restFails := max(0, float64(int64(groupFailures-s.failures.Load()))-(fails-1))
	if weightsAt(rate).sum(restFails, restOKs) > -takeForHealthy {
		return Reason{}, false
	}
	rate = max(rate, restFails/(restFails+restOKs))
	sum := weightsAt(rate).sum(fails, oks)
	return Reason{Rule: Sequential, Count: int(fails), Calls: int(fails + oks), Rate: rate, LLR: sum}, sum >= takeForBad
}

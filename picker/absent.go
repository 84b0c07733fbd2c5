package picker

import (
	"sync/atomic"
	"time"

	"github.com/mlbalancer/mlbalancer/health"
)

// A server that says it does not hold a model is not asked for it for a while: minAbsence at first, twice as long each time it says so
// again soon after, maxAbsence at most. It is asked again at once when it says that it has become ready to answer for the model.
const (
	minAbsence = int64(500 * time.Millisecond)
	maxAbsence = int64(30 * time.Second)
)

// absentSlots bounds what is remembered of all models on all endpoints, mistyped names included, to 24 KiB for each channel: a new
// absence takes the place of that among a few which is over first.
const (
	absentSlots = 1024
	absentProbe = 4
)

// absentees remembers which models are not on which endpoints. It is safe for concurrent use.
type absentees struct {
	last  atomic.Int64 // when the last absence is over: nothing need be looked up after it
	slots [absentSlots]absence
}

// absence is one slot. Its words are written one after the other; who reads between takes one absence for another, for one pick.
type absence struct {
	pair   atomic.Uint64
	until  atomic.Int64
	length atomic.Int64
}

// pairKey joins the keys of an endpoint and a model. It is never 0.
func pairKey(e *Endpoint, model uint64) uint64 {
	return max(1, (e.key+e.life.Load()^model)*0x9e3779b97f4a7c15)
}

func (a *absentees) find(pair uint64) *absence {
	for i := range uint64(absentProbe) {
		if s := &a.slots[(pair>>32+i)%absentSlots]; s.pair.Load() == pair {
			return s
		}
	}
	return nil
}

// absent reports whether the endpoint is not to be asked for the model.
func (a *absentees) absent(e *Endpoint, model uint64, now int64) bool {
	return now < a.last.Load() && a.remembers(e, model, now)
}

func (a *absentees) remembers(e *Endpoint, model uint64, now int64) bool {
	s := a.find(pairKey(e, model))
	return s != nil && now < s.until.Load()
}

// missed notes that the endpoint said it does not hold the model. Answers to calls that were on their way together count once.
func (a *absentees) missed(e *Endpoint, model uint64, now int64) {
	pair := pairKey(e, model)
	s := a.find(pair)
	least := e.leastAbsence(model)
	length := least
	switch {
	case s == nil:
		s = a.replace(pair)
	case now < s.until.Load():
		return
	case now-s.until.Load() < s.length.Load():
		length = max(least, min(2*s.length.Load(), maxAbsence))
	}
	s.length.Store(length)
	s.until.Store(now + length)
	for last := a.last.Load(); now+length > last && !a.last.CompareAndSwap(last, now+length); last = a.last.Load() {
	}
}

// leastAbsence returns for how long the endpoint is not asked at first for a model that it said it does not hold: for maxAbsence if
// its server names others, and loads none for a call. It need not name all that it holds, and was asked for that; now it has answered.
func (e *Endpoint) leastAbsence(model uint64) int64 {
	if s := e.stands(); s&explicit != 0 && e.holds(s, model) == health.ModelUnknown {
		return maxAbsence
	}
	return minAbsence
}

// replace gives a pair the slot among a few whose absence is over first.
func (a *absentees) replace(pair uint64) *absence {
	var first *absence
	for i := range uint64(absentProbe) {
		s := &a.slots[(pair>>32+i)%absentSlots]
		if first == nil || s.until.Load() < first.until.Load() {
			first = s
		}
	}
	first.until.Store(0)
	first.pair.Store(pair)
	return first
}

// found notes that the endpoint holds the model after all.
func (a *absentees) found(e *Endpoint, model uint64, now int64) {
	if now >= a.last.Load()+maxAbsence {
		return
	}
	if s := a.find(pairKey(e, model)); s != nil {
		s.until.Store(0)
		s.pair.Store(0)
	}
}

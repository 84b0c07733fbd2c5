package retry

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// window is how many seconds of the past a Budget looks at. Failures come in bursts: with ten seconds of calls behind it, a
// client whose servers have always answered can retry all that is in flight when one of them dies.
const window = 10

// A Budget bounds the attempts that are made on top of calls, so that servers in trouble are not buried under retries. Within
// the last ten seconds, counted by whole seconds, it allows ratio times as many as there were calls, or minPerSecond for each
// second if that is more, so that a client with few calls can retry those.
//
// All methods take the time in nanoseconds, on one clock, whose start does not matter. They are safe for concurrent use, take no
// lock and do not allocate.
type Budget struct {
	ratio   float64
	floor   float64 // attempts in a window
	seconds [window]atomic.Uint64
}

// NewBudget returns a Budget for ratio (0 to 1) attempts a call, and at least minPerSecond (0 to 1e6) a second. With both 0 it
// allows nothing. It panics if one is out of range.
func NewBudget(ratio, minPerSecond float64) *Budget {
	if !(ratio >= 0 && ratio <= 1) {
		panic(fmt.Sprintf("retry: NewBudget: ratio is %v, want 0 to 1", ratio))
	}
	if !(minPerSecond >= 0 && minPerSecond <= 1e6) {
		panic(fmt.Sprintf("retry: NewBudget: minPerSecond is %v, want 0 to 1e6", minPerSecond))
	}
	return &Budget{ratio: ratio, floor: minPerSecond * window}
}

// second is one second of a Budget in a word: which one (20 bits, so that a second is taken for another after sixty days of
// silence), how many calls there were in it, and how many attempts on top of them (22 bits each).
type second uint64

const (
	countBits = 22
	oneSpent  = second(1)
	oneCall   = second(1) << countBits
	epochBits = 64 - 2*countBits
	maxCount  = 1 << (countBits - 1) // counting stops at half of what fits, so that no race runs over
)

func (s second) spent() uint64 { return uint64(s) & (1<<countBits - 1) }
func (s second) calls() uint64 { return uint64(s) >> countBits & (1<<countBits - 1) }
func (s second) epoch() uint64 { return uint64(s) >> (2 * countBits) }

// at returns the word of the second that now is in, and that second without any counts.
func (b *Budget) at(now int64) (*atomic.Uint64, second) {
	n := uint64(now) / uint64(time.Second)
	return &b.seconds[n%window], second(n << (2 * countBits))
}

// load returns what is in the word for the second that fresh is: fresh itself if the word is still another second's.
func load(word *atomic.Uint64, fresh second) (old uint64, s second) {
	old = word.Load()
	if s = second(old); s.epoch() == fresh.epoch() {
		return old, s
	}
	return old, fresh
}

// Deposit counts a call.
func (b *Budget) Deposit(now int64) {
	word, fresh := b.at(now)
	for {
		old, s := load(word, fresh)
		switch {
		case s.calls() >= maxCount:
			return
		case second(old) == s: // the common case needs no loop: whichever second it ends up in
			word.Add(uint64(oneCall))
			return
		case word.CompareAndSwap(old, uint64(s+oneCall)):
			return
		}
	}
}

// TryWithdraw reports whether one more attempt is allowed, and counts it if it is.
func (b *Budget) TryWithdraw(now int64) bool {
	word, fresh := b.at(now)
	for {
		old, s := load(word, fresh)
		if !b.allows(word, s) {
			return false
		}
		if word.CompareAndSwap(old, uint64(s+oneSpent)) {
			return true
		}
	}
}

// allows reports whether one more attempt fits into the window that ends with s, which is in word.
func (b *Budget) allows(word *atomic.Uint64, s second) bool {
	calls, spent := s.calls(), s.spent()
	for i := range b.seconds {
		if w := &b.seconds[i]; w != word {
			past := second(w.Load())
			if age := (s.epoch() - past.epoch()) % (1 << epochBits); age < window {
				calls += past.calls()
				spent += past.spent()
			}
		}
	}
	return s.spent() < maxCount && float64(spent+1) <= math.Max(b.ratio*float64(calls), b.floor)
}

// Refund takes a TryWithdraw of the same second back: the attempt was not made. Later it does nothing.
func (b *Budget) Refund(now int64) {
	word, fresh := b.at(now)
	for {
		old, s := load(word, fresh)
		if s.spent() == 0 || word.CompareAndSwap(old, uint64(s-oneSpent)) {
			return
		}
	}
}

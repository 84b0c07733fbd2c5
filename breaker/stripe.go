package breaker

import (
	"math/bits"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"
)

// stripe is a cache line of a breaker that few goroutines write to. A call that succeeds writes to nothing else.
type stripe struct {
	ok    atomic.Uint64         // calls that succeeded in time
	calls [noSlot]atomic.Uint64 // calls in flight, as ticket says; 0 where there is none
}

const (
	maxStripes  = 32
	stripeShift = 3
	// noSlot is the slot of a call that found all that it tried taken. It is judged when it ends, but not while it is in flight.
	noSlot = 1<<stripeShift - 1
	// maxFull is how many stripes a call tries.
	maxFull = 4
)

// enter notes a call in flight and returns where.
func (s *stripe) enter(ticket uint64) uint64 {
	for i := range s.calls {
		if c := &s.calls[i]; c.Load() == 0 && c.CompareAndSwap(0, ticket) {
			return uint64(i)
		}
	}
	return noSlot
}

// origins are what the calls of a stripe are of: half of the model's key (32 bits, 0 for none) and the stamp of when the call
// began (32 bits) each. They are noted right after the ticket, matter only to calls that are late, and so lie apart.
type origins struct {
	of [noSlot]atomic.Uint64
	_  [8]byte
}

func originOf(model uint64, now int64) uint64 {
	if model == 0 {
		return 0
	}
	return uint64(faultKey(model))<<32 | uint64(stampOf(now))
}

// A ticket is a call in flight: when it will be slow, in stamps (40 bits of them), the epoch that it began in (12 bits), and
// its slow time (12 bits). It is never 0. Two calls that follow one another in a slot have different tickets if the first was
// taken for slow before it ended, since the second is slow at a later time.
const (
	ticketDueShift   = 24
	ticketEpochShift = 12
	ticketLow        = 1<<12 - 1
	slowUnit         = 26 // slow times are in units of 2^26 ns (67 ms), rounded up; 4.6 minutes or more are all one
)

// maxSlow is the longest slow time; longer ones are taken for it.
const maxSlow = 24 * time.Hour

func newTicket(now int64, slow time.Duration, epoch uint16) uint64 {
	slow = min(slow, maxSlow)
	due := uint64(now+int64(slow))>>stampUnit + 1
	units := min(uint64(slow)>>slowUnit+1, ticketLow)
	return due<<ticketDueShift | uint64(epoch)&ticketLow<<ticketEpochShift | units
}

// overdue reports whether the call with a ticket is slow by now.
func overdue(ticket uint64, now int64) bool {
	return int64(uint64(now)>>stampUnit<<ticketDueShift-ticket&^(1<<ticketDueShift-1)) >= 0
}

func ticketIsOf(ticket uint64, epoch uint16) bool {
	return ticket>>ticketEpochShift&ticketLow == uint64(epoch)&ticketLow
}

func ticketSlow(ticket uint64) time.Duration { return time.Duration(ticket&ticketLow) << slowUnit }

// newStripes returns eight stripes for each processor, a power of two of them in all, so that goroutines seldom share one.
func newStripes() []stripe {
	n := min(8*runtime.GOMAXPROCS(0), maxStripes)
	return make([]stripe, 1<<bits.Len(uint(n-1)))
}

// stripeHint returns a number that is mostly the same for one goroutine and different for others: a hash of where its stack is.
func stripeHint() uint64 {
	var here byte
	return uint64(uintptr(unsafe.Pointer(&here))) >> 11 * 0x9e3779b97f4a7c15 >> 56
}

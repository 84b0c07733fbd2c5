package breaker

import (
	"fmt"
	"time"
)

// State is what a breaker does with calls.
type State uint8

const (
	// Closed: calls pass and are counted. It is the zero value.
	Closed State = iota
	// Open: calls are refused until the open time is over.
	Open
	// HalfOpen: a few probes pass, which decide whether the breaker closes or opens again.
	HalfOpen
)

var stateNames = [...]string{Closed: "closed", Open: "open", HalfOpen: "half-open"}

// String returns the state in lower case.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// MarshalText implements encoding.TextMarshaler.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Status is what would become of a call that asked now.
type Status uint8

const (
	// Usable: closed; any call passes. It is the zero value.
	Usable Status = iota
	// Probing: a call would pass as a probe, unless another call is faster.
	Probing
	// Refusing: a call would be refused.
	Refusing
)

var statusNames = [...]string{Usable: "usable", Probing: "probing", Refusing: "refusing"}

// String returns the status in lower case.
func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return fmt.Sprintf("status(%d)", uint8(s))
}

// MarshalText implements encoding.TextMarshaler.
func (s Status) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// word is the whole state of a circuit, so that each transition is one compare-and-swap:
//
//	bits  0-1   state
//	bits  2-17  epoch, which counts the transitions: a result from another epoch has no vote
//	bits 18-22  exponent of the open time: how often in a row the breaker has opened again
//	bits 23-27  half-open: probes granted in this period; closed: flags
//	bits 28-31  half-open: probes that succeeded
//	bits 32-63  a stamp: open: when the open time ends; half-open: when the period of grants began; closed: since when
type word uint64

const (
	epochShift = 2
	expShift   = 18
	grantShift = 23
	winShift   = 28
	stampShift = 32

	stateMask = 1<<epochShift - 1
	epochMask = 1<<(expShift-epochShift) - 1
	maxExp    = 1<<(grantShift-expShift) - 1
	grantMask = 1<<(winShift-grantShift) - 1
	winMask   = 1<<(stampShift-winShift) - 1

	oneGrant = word(1) << grantShift
	oneWin   = word(1) << winShift

	// ramping: the traffic of a breaker that closed is still being brought back.
	ramping = word(1) << grantShift
	// opened: the breaker was open before, and has not been steady since.
	opened = word(2) << grantShift
)

func makeWord(s State, epoch uint16, exp uint, stamp uint32) word {
	return word(s) | word(epoch)<<epochShift | word(min(exp, maxExp))<<expShift | word(stamp)<<stampShift
}

func (w word) state() State  { return State(w & stateMask) }
func (w word) epoch() uint16 { return uint16(w >> epochShift & epochMask) }
func (w word) exp() uint     { return uint(w >> expShift & maxExp) }
func (w word) grants() int   { return int(w >> grantShift & grantMask) }
func (w word) wins() int     { return int(w >> winShift & winMask) }
func (w word) stamp() uint32 { return uint32(w >> stampShift) }

// Stamps are times in units of 2^20 ns (1.05 ms), modulo 2^32 of them (52 days). They are compared by their difference, so that
// the fixed point which times count from does not matter.
const stampUnit = 20

func stampOf(now int64) uint32 { return uint32(now >> stampUnit) }

// stampAfter is the first stamp that is no earlier than now + d.
func stampAfter(now int64, d time.Duration) uint32 {
	return uint32((now + int64(d) + 1<<stampUnit - 1) >> stampUnit)
}

// until returns how long it is from now to the stamp: 0 or less once it is reached.
func until(stamp uint32, now int64) time.Duration {
	const sign = 64 - stampShift - stampUnit
	return time.Duration(int64((uint64(stamp)<<stampUnit-uint64(now))<<sign) >> sign)
}

package breaker

import (
	"fmt"
	"sync/atomic"
	"time"
)

// Rule is what made a breaker change its state.
type Rule uint8

const (
	// Consecutive: calls failed in a row.
	Consecutive Rule = iota + 1
	// Hung: calls are past their slow time, and for as long the endpoint has answered nothing; calls that failed before in a
	// row are counted with them.
	Hung
	// FailureRatio: too large a share of the calls in the window failed.
	FailureRatio
	// SlowRatio: too large a share of the calls in the window was slow, and the rest of the group was not as slow.
	SlowRatio
	// Sequential: calls failed significantly more often than those of the rest of the group.
	Sequential
	// Due: the open time is over and a first probe was asked for.
	Due
	// ProbeFailed: a probe failed.
	ProbeFailed
	// ProbeExpired: a probe did not end within its lease.
	ProbeExpired
	// Probed: enough probes succeeded.
	Probed
	// OverCap: the group became so small that fewer of its breakers may be open.
	OverCap
	// WasReset: Reset was called.
	WasReset
)

var ruleNames = [...]string{
	Consecutive: "consecutive", Hung: "hung", FailureRatio: "failure-ratio", SlowRatio: "slow-ratio", Sequential: "sequential",
	Due: "due", ProbeFailed: "probe-failed", ProbeExpired: "probe-expired", Probed: "probed", OverCap: "over-cap",
	WasReset: "reset",
}

// String returns the rule in lower case, with dashes.
func (r Rule) String() string {
	if r > 0 && int(r) < len(ruleNames) {
		return ruleNames[r]
	}
	return fmt.Sprintf("rule(%d)", uint8(r))
}

// MarshalText implements encoding.TextMarshaler.
func (r Rule) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// Reason is the rule that made a breaker change its state, and the figures that it went by.
type Reason struct {
	// Rule is the rule; which of the figures below mean something depends on it.
	Rule Rule `json:"rule"`
	// Count is how many calls failed, hang or were slow, or how many probes succeeded.
	Count int `json:"count,omitempty"`
	// Calls is how many calls Count is out of.
	Calls int `json:"calls,omitempty"`
	// Within is the time that the figures are of: the window of a ratio, the slow time of a call that hangs, the lease of a
	// probe.
	Within time.Duration `json:"within_ns,omitempty"`
	// Rate is the failure rate of the rest of the group, for Sequential, or its share of slow calls, for SlowRatio.
	Rate float64 `json:"rate,omitempty"`
	// LLR is the logarithm of how much likelier the failures are if the endpoint is bad, for Sequential.
	LLR float64 `json:"llr,omitempty"`
}

// String returns the reason in words.
func (r Reason) String() string {
	switch r.Rule {
	case Consecutive:
		return fmt.Sprintf("%d calls failed in a row", r.Count)
	case Hung:
		return fmt.Sprintf("%d calls in a row hang or failed, nothing was answered for %v", r.Count, r.Within)
	case FailureRatio:
		return fmt.Sprintf("%d of %d calls failed in %v (%.2f)", r.Count, r.Calls, r.Within, ratio(r.Count, r.Calls))
	case SlowRatio:
		return fmt.Sprintf("%d of %d calls were slow in %v (%.2f, the rest %.2f)",
			r.Count, r.Calls, r.Within, ratio(r.Count, r.Calls), r.Rate)
	case Sequential:
		return fmt.Sprintf("%d of %d calls failed, where the rest's rate is %.2g (llr %.1f)", r.Count, r.Calls, r.Rate, r.LLR)
	case Due:
		return "open time is over"
	case ProbeFailed:
		return "a probe failed"
	case ProbeExpired:
		return fmt.Sprintf("a probe did not end within its lease of at least %v", r.Within)
	case Probed:
		return fmt.Sprintf("%d probes succeeded", r.Count)
	case OverCap:
		return fmt.Sprintf("only %d may be open now", r.Count)
	case WasReset:
		return "it was reset"
	}
	return r.Rule.String()
}

func ratio(n, of int) float64 { return float64(n) / float64(max(of, 1)) }

// Event is one change of a breaker's state.
type Event struct {
	// Endpoint is the name of the breaker's endpoint.
	Endpoint string `json:"endpoint"`
	// Model is the name of the model if it is a Pair that changed, else empty.
	Model string `json:"model,omitempty"`
	From  State  `json:"from"`
	To    State  `json:"to"`
	// At is the time of the change, in nanoseconds since the fixed point that all times here count from.
	At int64 `json:"at_ns"`
	// OpenFor is how long it stays open, if it opened.
	OpenFor time.Duration `json:"open_for_ns,omitempty"`
	Reason  Reason        `json:"reason"`
}

// String returns the event as one line of a log.
func (e Event) String() string {
	name := e.Endpoint
	if e.Model != "" {
		name += ", model " + e.Model
	}
	s := fmt.Sprintf("%s: %v to %v: %v", name, e.From, e.To, e.Reason)
	if e.To == Open {
		s += fmt.Sprintf("; for %v", e.OpenFor)
	}
	return s
}

// maxEvents is how many events a group keeps until they are drained; when there are more, the oldest are lost.
const maxEvents = 1024

// eventLog is a ring of events with many writers and one reader at a time. A writer takes its place before it makes the change
// and confirms it afterwards, so that the places of one breaker's changes are in the order of the changes.
type eventLog struct {
	next    atomic.Uint64 // places taken so far
	slots   [maxEvents]atomic.Pointer[entry]
	reading atomic.Bool
	read    uint64        // places read so far; belongs to who holds reading
	lost    atomic.Uint64 // events that were overwritten before they were read
}

type entry struct {
	Event
	place uint64
	epoch uint16
	fate  atomic.Uint32
}

const (
	pending uint32 = iota
	happened
	void
)

// begin takes a place for an event that is about to happen, and with which an epoch begins.
func (l *eventLog) begin(e Event, epoch uint16) *entry {
	n := &entry{Event: e, epoch: epoch, place: l.next.Add(1) - 1}
	slot := &l.slots[n.place%maxEvents]
	for {
		old := slot.Load()
		if old != nil && old.place > n.place {
			return n // the ring went round meanwhile
		}
		if slot.CompareAndSwap(old, n) {
			return n
		}
	}
}

func (e *entry) settle(fate uint32) { e.fate.Store(fate) }

// drain hands the events to f that have happened since the last time. It returns at once if a drain is under way, f's own
// included, and stops at an event of which it is not known yet whether it happens.
func (l *eventLog) drain(f func(Event)) {
	if !l.reading.CompareAndSwap(false, true) {
		return
	}
	defer l.reading.Store(false)
	for end := l.next.Load(); l.read < end; {
		if next := l.next.Load(); next-l.read > maxEvents {
			l.lost.Add(next - maxEvents - l.read)
			l.read = next - maxEvents
			continue
		}
		e := l.slots[l.read%maxEvents].Load()
		if e == nil || e.place < l.read {
			return // taken, not filled in yet
		}
		if e.place > l.read {
			continue // overwritten since next was read
		}
		fate := e.fate.Load()
		if fate == pending {
			return
		}
		l.read++
		if fate == happened {
			f(e.Event)
		}
	}
}

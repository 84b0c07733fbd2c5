package breaker

import "fmt"

// Outcome is what the end of a call says about the endpoint.
type Outcome uint8

const (
	// Unsent: the call never reached the endpoint. It judges nobody and gives back all that it took. It is the zero value.
	Unsent Outcome = iota
	// Success: the endpoint did what it was asked. It counts as Slow if the call took longer than its slow time.
	Success
	// Slow: a success that took too long.
	Slow
	// Failure: the endpoint failed.
	Failure
	// Neutral: the endpoint answered, or was not let answer, in a way that says nothing about it.
	Neutral
)

var outcomeNames = [...]string{Unsent: "unsent", Success: "success", Slow: "slow", Failure: "failure", Neutral: "neutral"}

// String returns the outcome in lower case.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return fmt.Sprintf("outcome(%d)", uint8(o))
}

// Permit is a call that was allowed, to be passed to Done of the same breaker exactly once. The zero Permit is that of a call
// which was refused; Done ignores it.
//
// It has no more than four fields because the compiler keeps such structs in registers.
type Permit struct {
	ticket uint64 // what stands in the slot
	epoch  uint16
	kind   permitKind
	at     uint8 // a call: stripe (5 bits) and slot (3 bits); a probe: slot
}

type permitKind uint8

const (
	noPermit permitKind = iota
	callPermit
	probePermit
)

// Probe reports whether the call is a probe of a half-open breaker.
func (p Permit) Probe() bool { return p.kind == probePermit }

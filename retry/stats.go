package retry

import "sync/atomic"

// Stats counts what interceptors do beyond first attempts. The zero value is ready to use; several interceptors may share one. It
// must not be copied. Counters only grow.
type Stats struct {
	// Sent counts the attempts that were made after a first one.
	Sent atomic.Uint64
	// Refused counts the calls that were not tried again because the Budget did not allow it.
	Refused atomic.Uint64
	// Exhausted counts the calls that were not tried again because the attempts were used up or every server was tried.
	Exhausted atomic.Uint64
}

package rig

import (
	"testing"
	"time"
)

// tick is how often conditions are looked at.
const tick = 2 * time.Millisecond

// Eventually waits until a condition holds, and fails the test if it does not within limit. Unlike testify's it asks on the test's own
// goroutine.
func Eventually(tb testing.TB, holds func() bool, limit time.Duration, what string, args ...any) {
	tb.Helper()
	if !waitFor(holds, limit) {
		tb.Fatalf("not within %v: "+what, append([]any{limit}, args...)...)
	}
}

func waitFor(holds func() bool, limit time.Duration) bool {
	deadline := time.Now().Add(limit)
	t := time.NewTicker(tick)
	defer t.Stop()
	for !holds() {
		if time.Now().After(deadline) {
			return false
		}
		<-t.C
	}
	return true
}

// For calls f every interval, for as long as a time, with the count of the call from 0.
func For(d, interval time.Duration, f func(i int)) {
	t := time.NewTicker(interval)
	defer t.Stop()
	end := time.Now().Add(d)
	for i := 0; time.Now().Before(end); i++ {
		f(i)
		<-t.C
	}
}

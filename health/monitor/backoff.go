package monitor

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Delays before a server is asked again. Those after a failure grow by growth from firstDelay to longestDelay, as gRPC's own do
// between attempts to connect, and start anew only when a question has been answered for steady: a stream that says something and
// ends would otherwise be opened without end (grpc-go#4469).
const (
	firstDelay   = time.Second
	longestDelay = 2 * time.Minute
	growth       = 1.6
	steady       = 10 * time.Second
	deniedDelay  = 2 * time.Minute
	jitter       = 0.2
)

// Backoff says how long to wait between questions that end by themselves. The zero value is ready to use, by one goroutine at a
// time.
type Backoff struct {
	delay time.Duration
}

// Next returns how long to wait after a question that took the given time to end: from about a second to about two minutes.
func (b *Backoff) Next(took time.Duration) time.Duration {
	if b.delay == 0 || took >= steady {
		b.delay = firstDelay
	} else {
		b.delay = min(time.Duration(float64(b.delay)*growth), longestDelay)
	}
	return spread(b.delay)
}

// spread returns d, give or take a random part of it, so that clients that were cut off together do not come back together.
func spread(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (1 - jitter + 2*jitter*rand.Float64()))
}

// Sleep waits for d, which may be 0 or less, and reports whether ctx is still alive.
func Sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 { // a timer of no time may crash the race detector in virtual time (see internal/memconn)
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return ctx.Err() == nil
	}
}

// restricted is how Triton refuses what --grpc-restricted-protocol covers, with UNAVAILABLE (src/grpc/infer_handler.h).
const restricted = "This protocol is restricted, expecting header"

// Denied reports whether a server has refused to answer for lack of rights. That says nothing of its health.
func Denied(err error) bool {
	s, _ := status.FromError(err)
	switch s.Code() {
	case codes.PermissionDenied, codes.Unauthenticated:
		return true
	case codes.Unavailable:
		return strings.Contains(s.Message(), restricted)
	}
	return false
}

package balancer

import (
	"context"
	"time"

	gbalancer "google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// outcome is what the end of an attempt says about the endpoint.
type outcome uint8

const (
	unsent  outcome = iota // the attempt never reached the endpoint
	success                // the endpoint did what it was asked
	failure                // the endpoint failed
	neutral                // it answered, or was not let answer, in a way that says nothing about it
)

// closingText is how grpc words the end of calls whose channel was closed under them.
const closingText = "grpc: the client connection is closing"

// outcomeOf judges an attempt. CANCELLED is the caller's doing only if the caller's own context is done, and nobody's when the
// channel is closing; else the server sent it.
func outcomeOf(info *gbalancer.DoneInfo, ctx context.Context) outcome {
	if info.Err == nil {
		if !info.BytesSent && !info.BytesReceived {
			return unsent
		}
		return success
	}
	switch status.Code(info.Err) {
	case codes.Unavailable, codes.Internal, codes.Unknown, codes.DataLoss, codes.ResourceExhausted, codes.DeadlineExceeded:
		return failure
	case codes.Canceled:
		if ctx.Err() == nil && status.Convert(info.Err).Message() != closingText {
			return failure
		}
	}
	return neutral
}

// A failed call counts with a latency between these, unless it took longer than the latter.
const (
	minFailureLatency = 10 * time.Millisecond
	maxFailureLatency = 30 * time.Second
)

// failureLatency is the latency that a failed call counts with: twice what the endpoint is known for if that is longer than it took, so that
// failing fast never makes an endpoint attractive.
func failureLatency(took time.Duration, known float64) time.Duration {
	penalty := time.Duration(min(2*known, float64(maxFailureLatency)))
	return max(took, penalty, minFailureLatency)
}

package outcome

import (
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// pushbackKey is the trailer in which a server says when to try again (gRFC A6).
const pushbackKey = "grpc-retry-pushback-ms"

// Pushback returns how long a server that failed an attempt wants callers to wait before the next: 0 if it does not say, less
// than 0 if there is to be no next. It says so in the trailer grpc-retry-pushback-ms, in milliseconds; what is negative, no
// number or given more than once means no next attempt, as gRFC A6 has it. Without that trailer a google.rpc.RetryInfo in the
// details of err counts.
func Pushback(trailer metadata.MD, err error) time.Duration {
	switch values := trailer[pushbackKey]; len(values) {
	case 0:
		return retryDelay(err)
	case 1:
		ms, err := strconv.ParseInt(values[0], 10, 32)
		if err != nil || ms < 0 {
			return -1
		}
		return time.Duration(ms) * time.Millisecond
	}
	return -1
}

// retryDelay returns the delay of the first RetryInfo in the details of err, and 0 if there is none.
func retryDelay(err error) time.Duration {
	s, _ := status.FromError(err)
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return max(info.GetRetryDelay().AsDuration(), 0)
		}
	}
	return 0
}

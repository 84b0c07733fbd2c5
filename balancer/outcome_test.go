package balancer

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	gbalancer "google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestOutcomeOfEachCode(t *testing.T) {
	failures := map[codes.Code]bool{codes.Unavailable: true, codes.Internal: true, codes.Unknown: true, codes.DataLoss: true,
		codes.ResourceExhausted: true, codes.DeadlineExceeded: true, codes.Canceled: true} // CANCELLED while the caller is there is the server's
	for c := codes.Canceled; c <= codes.Unauthenticated; c++ {
		want := neutral
		if failures[c] {
			want = failure
		}
		info := gbalancer.DoneInfo{Err: status.Error(c, "text"), BytesSent: true}
		require.Equal(t, want, outcomeOf(&info, context.Background()), c.String())
	}
}

func TestOutcomeOfTheRest(t *testing.T) {
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	for _, tc := range []struct {
		name string
		info gbalancer.DoneInfo
		ctx  context.Context
		want outcome
	}{
		{"never happened", gbalancer.DoneInfo{}, context.Background(), unsent},
		{"ok", gbalancer.DoneInfo{BytesSent: true, BytesReceived: true}, context.Background(), success},
		{"the caller cancelled", gbalancer.DoneInfo{Err: status.Error(codes.Canceled, "context canceled"), BytesSent: true}, gone, neutral},
		{"the channel closes", gbalancer.DoneInfo{Err: status.Error(codes.Canceled, closingText), BytesSent: true}, context.Background(), neutral},
	} {
		t.Run(tc.name, func(t *testing.T) { require.Equal(t, tc.want, outcomeOf(&tc.info, tc.ctx)) })
	}
}

func TestFailureLatencyIsNeverAttractive(t *testing.T) {
	require.Equal(t, 10*time.Millisecond, failureLatency(0, 0))
	require.Equal(t, 2*time.Second, failureLatency(time.Millisecond, float64(time.Second)))
	require.Equal(t, 30*time.Second, failureLatency(time.Millisecond, float64(time.Hour)), "however often it failed")
	require.Equal(t, time.Minute, failureLatency(time.Minute, float64(time.Hour)))
	require.Equal(t, 5*time.Second, failureLatency(5*time.Second, float64(time.Second)))
}

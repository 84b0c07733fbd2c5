package monitor

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestBackoffGrowsToTwoMinutes(t *testing.T) {
	t.Parallel()
	var b Backoff
	for want := firstDelay; want < longestDelay; want = time.Duration(float64(want) * growth) {
		assert.InDelta(t, want, b.Next(steady-1), jitter*float64(want))
	}
	for range 20 {
		assert.InDelta(t, longestDelay, b.Next(0), jitter*float64(longestDelay))
	}
	assert.InDelta(t, firstDelay, b.Next(steady), jitter*float64(firstDelay))
}

func TestDelaysAreSpread(t *testing.T) {
	t.Parallel()
	low, high := time.Hour, time.Duration(0)
	for range 1000 {
		d := spread(time.Second)
		low, high = min(low, d), max(high, d)
	}
	assert.Less(t, low, 850*time.Millisecond)
	assert.Greater(t, high, 1150*time.Millisecond)
}

func TestSleep(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		start := time.Now()
		assert.True(t, Sleep(t.Context(), time.Second))
		assert.Equal(t, time.Second, time.Since(start))
		assert.True(t, Sleep(t.Context(), -1))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.False(t, Sleep(ctx, time.Hour))
		assert.Equal(t, 2*time.Second, time.Since(start))
		assert.False(t, Sleep(ctx, 0))
	})
}

func TestDenied(t *testing.T) {
	t.Parallel()
	denied := status.Error(codes.PermissionDenied, "no")
	for _, err := range []error{
		denied,
		fmt.Errorf("wrapped: %w", denied),
		status.Error(codes.Unauthenticated, ""),
		status.Error(codes.Unavailable, "This protocol is restricted, expecting header 'triton-grpc-protocol-infer'"),
	} {
		assert.True(t, Denied(err), "%v", err)
	}
	for _, err := range []error{nil, errors.New("denied"), status.Error(codes.Unavailable, "restricted"), context.Canceled} {
		assert.False(t, Denied(err), "%v", err)
	}
}

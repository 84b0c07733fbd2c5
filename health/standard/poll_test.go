package standard

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer/health"
)

// checker is a server that has only Check, as Triton.
type checker struct {
	healthpb.UnimplementedHealthServer
	mu     sync.Mutex
	status serving
	err    error
	delay  time.Duration
	checks int
	named  bool
}

func (c *checker) Check(ctx context.Context, r *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checks++
	c.named = c.named || r.GetService() != ""
	if c.delay > 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &healthpb.HealthCheckResponse{Status: c.status}, c.err
}

func (c *checker) set(s serving, err error, delay time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status, c.err, c.delay = s, err, delay
}

func (c *checker) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.checks
}

func TestCheckIsCalledOncePerInterval(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := &checker{status: statusServing}
		r, stop := start(t, c, &inUse{names: []string{"A"}})
		time.Sleep(9*interval + interval/2)
		synctest.Wait()
		assert.Equal(t, 10, c.count())
		assert.Equal(t, 10, r.Now().Reports)
		assert.Equal(t, health.Report{Server: health.ServerReady, Interval: interval}, r.Now().Report)
		assert.Empty(t, r.States(), "every name mirrors the server")
		assert.False(t, c.named)
		assert.ErrorIs(t, stop(), context.Canceled)
	})
}

func TestWhatCheckSays(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := &checker{status: statusServing}
		r, _ := start(t, c, &inUse{})
		for name, said := range map[string]struct {
			status serving
			err    error
			want   health.ServerState
		}{
			"ready":         {statusServing, nil, health.ServerReady},
			"not ready":     {statusNotServing, nil, health.ServerNotReady},
			"unknown":       {statusUnknown, nil, health.ServerUnknown},
			"not found":     {0, status.Error(codes.NotFound, "unknown service"), health.ServerNotReady},
			"exiting":       {0, status.Error(codes.Unavailable, "Server exiting"), health.ServerDraining},
			"shutting down": {0, status.Error(codes.Unavailable, "GRPC server is shutting down"), health.ServerDraining},
			"stopping":      {0, status.Error(codes.Unavailable, "Server is stopping, scheduler for"), health.ServerDraining},
		} {
			c.set(said.status, said.err, 0)
			time.Sleep(interval)
			synctest.Wait()
			require.Equal(t, said.want, r.Now().Report.Server, name)
		}
	})
}

func TestACheckThatFailsSaysNothing(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		delay time.Duration
	}{
		"unavailable": {err: status.Error(codes.Unavailable, "connection reset")},
		"hanging":     {delay: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				s := &checker{status: statusServing}
				r, _ := start(t, s, &inUse{})
				s.set(statusServing, c.err, c.delay)
				before := s.count()
				time.Sleep(60 * interval)
				synctest.Wait()
				assert.Equal(t, 1, r.Now().Reports)
				assert.InDelta(t, 8, s.count()-before, 4, "the delay grows")
				s.set(statusNotServing, nil, 0)
				time.Sleep(60 * interval)
				synctest.Wait()
				assert.Equal(t, health.ServerNotReady, r.Now().Report.Server)
				assert.Greater(t, r.Now().Reports, 10, "and is over with the first answer")
			})
		})
	}
}

func TestPollEndsWithAnError(t *testing.T) {
	denied := status.Error(codes.PermissionDenied, "no")
	for name, c := range map[string]struct {
		first  error // the answer to the first Check, and the second
		second error
		want   codes.Code
	}{
		"unimplemented at once": {first: status.Error(codes.Unimplemented, ""), want: codes.Unimplemented},
		"failing at once":       {first: status.Error(codes.Unavailable, "queue full"), want: codes.Unavailable},
		"denied at once":        {first: denied, want: codes.PermissionDenied},
		"denied later":          {second: denied, want: codes.PermissionDenied},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				s := &checker{status: statusServing, err: c.first}
				r, stop := start(t, s, &inUse{})
				s.set(statusServing, c.second, 0)
				time.Sleep(interval)
				synctest.Wait()
				assert.Equal(t, c.want, status.Code(stop()))
				assert.Equal(t, c.first == nil, r.Now().Reports == 1)
			})
		})
	}
}

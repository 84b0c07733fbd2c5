package monitor_test

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer/health"
	"github.com/mlbalancer/mlbalancer/health/monitor"
	"github.com/mlbalancer/mlbalancer/health/monitor/monitortest"
)

// watchServer is a health service whose Watch of the server as a whole is a function, and counted. It knows no other names.
type watchServer struct {
	healthpb.UnimplementedHealthServer
	watch func(s grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error
	calls atomic.Int64
}

func (w *watchServer) Watch(r *healthpb.HealthCheckRequest, s grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	if r.GetService() == "" {
		w.calls.Add(1)
		return w.watch(s)
	}
	if err := s.Send(&healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVICE_UNKNOWN}); err != nil {
		return err
	}
	<-s.Context().Done()
	return nil
}

func say(s grpc.ServerStreamingServer[healthpb.HealthCheckResponse], status healthpb.HealthCheckResponse_ServingStatus) error {
	return s.Send(&healthpb.HealthCheckResponse{Status: status})
}

func number(name string) int { return slices.Index(monitor.Names(), name) }

// HLTH-01: a Watch that ends is not opened again in a tight loop, not even one that said something before it ended.
func TestAWatchThatEndsIsNotOpenedInALoop(t *testing.T) {
	t.Parallel()
	type stream = grpc.ServerStreamingServer[healthpb.HealthCheckResponse]
	const serving = healthpb.HealthCheckResponse_SERVING
	for name, c := range map[string]struct {
		watch           func(stream) error
		atLeast, atMost int64
		silences        int
		speaks          bool
	}{
		"returns OK at once": {func(stream) error { return nil }, 4, 12, 1, false},
		"SERVING then OK":    {func(s stream) error { return say(s, serving) }, 4, 12, 0, true},
		"SERVING then UNAVAILABLE": {func(s stream) error {
			return errors.Join(say(s, serving), status.Error(codes.Unavailable, "going"))
		}, 4, 12, 0, true},
		"blocks": {func(s stream) error {
			<-s.Context().Done()
			return nil
		}, 1, 1, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := &watchServer{watch: c.watch}
				conn := monitortest.Serve(t, func(s *grpc.Server) { healthpb.RegisterHealthServer(s, w) })
				var r monitortest.Record
				run(t, conn, number("standard"), &r, 10*time.Second)
				calls := w.calls.Load()
				assert.GreaterOrEqual(t, calls, c.atLeast)
				assert.LessOrEqual(t, calls, c.atMost)
				assert.Equal(t, c.silences, r.Now().Silences)
				if c.speaks {
					assert.EqualValues(t, calls, r.Now().Withdrawn)
					assert.GreaterOrEqual(t, int64(r.Now().Reports), calls)
				} else {
					assert.Zero(t, r.Now().Reports)
					assert.Zero(t, r.Now().Withdrawn)
				}
			})
		})
	}
}

// HLTH-07: a server that changes its mind every 50 ms is heard each time.
func TestAFlappingServerIsHeard(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := &watchServer{watch: func(s grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
			for i := range 200 {
				if err := say(s, healthpb.HealthCheckResponse_ServingStatus(1+(i+1)%2)); err != nil {
					return err
				}
				time.Sleep(50 * time.Millisecond)
			}
			if err := say(s, healthpb.HealthCheckResponse_SERVING); err != nil {
				return err
			}
			<-s.Context().Done()
			return nil
		}}
		conn := monitortest.Serve(t, func(s *grpc.Server) { healthpb.RegisterHealthServer(s, w) })
		var r monitortest.Record
		start := time.Now()
		run(t, conn, number("standard"), &r, 13*time.Second)
		assert.EqualValues(t, 1, w.calls.Load())
		assert.GreaterOrEqual(t, r.Now().Reports, 201)
		assert.LessOrEqual(t, r.Now().Last.Sub(start), 10*time.Second+20*time.Millisecond)
		assert.Equal(t, health.ServerReady, r.Now().Report.Server)
		assert.Zero(t, r.Now().Withdrawn)
	})
}

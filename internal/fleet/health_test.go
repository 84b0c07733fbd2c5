package fleet

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

func TestStandardHealth(t *testing.T) {
	inBubble(t, Config{Servers: 1}, func(t *testing.T, f *Fleet) {
		s := f.Servers[0]
		h := healthpb.NewHealthClient(channel(t, f, 0))
		for _, service := range []string{"", "inference.GRPCInferenceService"} {
			resp, err := h.Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
			require.NoError(t, err)
			assert.Equal(t, healthpb.HealthCheckResponse_SERVING, resp.GetStatus())
		}
		_, err := h.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "nope"})
		assert.Equal(t, codes.NotFound, status.Code(err))

		watch, err := h.Watch(t.Context(), &healthpb.HealthCheckRequest{})
		require.NoError(t, err)
		next := func() healthpb.HealthCheckResponse_ServingStatus {
			resp, err := watch.Recv()
			require.NoError(t, err)
			return resp.GetStatus()
		}
		assert.Equal(t, healthpb.HealthCheckResponse_SERVING, next())
		s.Drain()
		assert.Equal(t, healthpb.HealthCheckResponse_NOT_SERVING, next())
		require.NoError(t, f.Reset())
		assert.Equal(t, healthpb.HealthCheckResponse_SERVING, next())
		begin := time.Now()
		s.GracefulStop()
		assert.Zero(t, time.Since(begin), "does not wait for the watch")
		_, err = watch.Recv()
		assert.Equal(t, codes.Unavailable, status.Code(err))
	})
}

func TestHealthWithoutWatch(t *testing.T) {
	inBubble(t, exact(Config{Servers: 1, NoWatch: true, Explicit: true}), func(t *testing.T, f *Fleet) {
		s := f.Servers[0]
		h := healthpb.NewHealthClient(channel(t, f, 0))
		check := func() healthpb.HealthCheckResponse_ServingStatus {
			resp, err := h.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "any"})
			require.NoError(t, err)
			return resp.GetStatus()
		}
		assert.Equal(t, healthpb.HealthCheckResponse_SERVING, check())

		c := client(t, f, 0)
		loaded := make(chan error, 1)
		go func() { loaded <- c.Load(t.Context(), "m") }()
		synctest.Wait()
		assert.Equal(t, healthpb.HealthCheckResponse_NOT_SERVING, check(), "while a model loads")
		require.NoError(t, <-loaded)
		assert.Equal(t, healthpb.HealthCheckResponse_SERVING, check())

		watch, err := h.Watch(t.Context(), &healthpb.HealthCheckRequest{})
		require.NoError(t, err)
		_, err = watch.Recv()
		assert.Equal(t, codes.Unimplemented, status.Code(err))

		s.Drain()
		_, err = h.Check(t.Context(), &healthpb.HealthCheckRequest{})
		requireStatus(t, err, codes.Unavailable, "Server exiting")
	})
}

func TestHealthOfModels(t *testing.T) {
	inBubble(t, exact(Config{Servers: 1, Slots: 1, ModelHealth: true, Explicit: true}), func(t *testing.T, f *Fleet) {
		s, c, h := f.Servers[0], client(t, f, 0), healthpb.NewHealthClient(channel(t, f, 0))
		watch, err := h.Watch(t.Context(), &healthpb.HealthCheckRequest{Service: "m"})
		require.NoError(t, err)
		begin := time.Now()
		pushed := func(want healthpb.HealthCheckResponse_ServingStatus, at time.Duration) {
			t.Helper()
			resp, err := watch.Recv()
			require.NoError(t, err)
			assert.Equal(t, want, resp.GetStatus())
			assert.Equal(t, at, time.Since(begin))
		}
		check := func(service string) healthpb.HealthCheckResponse_ServingStatus {
			t.Helper()
			resp, err := h.Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
			if err != nil {
				requireStatus(t, err, codes.NotFound, "unknown service")
				return healthpb.HealthCheckResponse_SERVICE_UNKNOWN
			}
			return resp.GetStatus()
		}
		pushed(healthpb.HealthCheckResponse_SERVICE_UNKNOWN, 0)
		assert.Equal(t, healthpb.HealthCheckResponse_SERVICE_UNKNOWN, check("m"))
		go c.Load(t.Context(), "m")
		pushed(healthpb.HealthCheckResponse_NOT_SERVING, 0)
		assert.Equal(t, healthpb.HealthCheckResponse_NOT_SERVING, check("m"), "while it loads")
		assert.Equal(t, healthpb.HealthCheckResponse_SERVING, check(""))
		pushed(healthpb.HealthCheckResponse_SERVING, 5*time.Second)

		require.Error(t, c.Load(t.Context(), "big"))
		assert.Equal(t, healthpb.HealthCheckResponse_NOT_SERVING, check("big"), "there was no memory for it")
		assert.Equal(t, healthpb.HealthCheckResponse_SERVING, check("m"))

		go c.Infer(t.Context(), NewRequest("m", time.Second))
		synctest.Wait()
		go c.Unload(t.Context(), "m")
		pushed(healthpb.HealthCheckResponse_NOT_SERVING, 5*time.Second)
		synctest.Wait()
		s.Lie(Health, Empty)
		pushed(healthpb.HealthCheckResponse_SERVICE_UNKNOWN, 5*time.Second)
		s.Lie(Health, Truth)
		pushed(healthpb.HealthCheckResponse_NOT_SERVING, 5*time.Second)
		assert.Equal(t, healthpb.HealthCheckResponse_SERVING, check(""), "whatever its models do")
	})
}

func TestHealthKnowsNoModelsByDefault(t *testing.T) {
	inBubble(t, Config{Servers: 1}, func(t *testing.T, f *Fleet) {
		f.Servers[0].Preload("m")
		_, err := healthpb.NewHealthClient(channel(t, f, 0)).Check(t.Context(), &healthpb.HealthCheckRequest{Service: "m"})
		requireStatus(t, err, codes.NotFound, "unknown service")
	})
}

package interop

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	ghealth "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/mlbalancer/mlbalancer/integration/interop/servers"
	"github.com/mlbalancer/mlbalancer/integration/rig"
	"github.com/mlbalancer/mlbalancer/internal/oip"
)

func TestTritonLoading(t *testing.T)   { testLoading(t, servers.Triton) }
func TestMLServerLoading(t *testing.T) { testLoading(t, servers.MLServer) }

// A model that loads, unloads, or cannot be loaded is no business of the others, though the server says meanwhile that all of it
// is not ready.
func testLoading(t *testing.T, k *servers.Kind) {
	extra := []servers.Model{
		{Name: "late", Loads: 6 * time.Second, Later: true},
		{Name: "broken", Later: true, Broken: true},
	}
	under(t, k, []policy{modelAware, onRing, roundRobin}, extra, func(t *testing.T, f *fleet) {
		calls := f.during(modelsOfAll(), func() {
			pass(time.Second)
			loaded := make(chan error, 1)
			go func() { loaded <- f.a.Load(f.within(), "late") }()
			pass(3 * time.Second)
			assertNotReady(t, f.a, "while a model loads")
			f.must(<-loaded)
			pass(2 * time.Second)
			f.must(f.a.Unload(f.within(), "late"))
			pass(2 * time.Second)
			require.Error(t, f.a.Load(f.within(), "broken"))
			pass(3 * time.Second)
			if k == servers.Triton {
				assertNotReady(t, f.a, "after a model could not be loaded")
			}
		})
		f.row("one model loads, unloads, fails to load", calls.all())
		assert.Empty(t, calls.all().Failed(), calls.all().String())
		if f.policy.name == roundRobin.name {
			return
		}
		f.assertStayed(calls, modelsOfAll()...)

		_, fresh := f.dial()
		var first rig.Results
		for range 20 {
			first = append(first, f.call(fresh, modelsOfA[0]))
			pass(100 * time.Millisecond)
		}
		assert.Empty(t, first.Failed(), first.String())
		assert.Positive(t, first.By()["a"], "a channel that is new avoids a server that is not ready: %v", first.By())
		if f.policy.exact {
			assert.Len(t, first, first.By()["a"], "%v", first.By())
		}
	})
}

// assertNotReady asserts that a server says of itself that it is not ready, by all the ways it has.
func assertNotReady(t *testing.T, s *servers.Server, when string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	ready, err := s.Service.ServerReady(ctx, &oip.ServerReadyRequest{})
	require.NoError(t, err)
	assert.False(t, ready.Ready, "%s", when)
	conn, err := grpc.NewClient(s.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	if health, err := ghealth.NewHealthClient(conn).Check(ctx, &ghealth.HealthCheckRequest{}); err == nil {
		assert.Equal(t, ghealth.HealthCheckResponse_NOT_SERVING, health.Status, "%s", when)
	}
}

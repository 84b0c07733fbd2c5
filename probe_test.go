package mlbalancer_test

import (
	"context"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer"
	"github.com/mlbalancer/mlbalancer/internal/memconn"
)

// probes are the methods by which the policy asks a server that offers none of them.
var probes = []string{
	"/grpc.health.v1.Health/Watch", "/grpc.health.v1.Health/Check", "/inference.GRPCInferenceService/ServerReady",
	"/mlbalancer.gpustats.v1.GPUStats/Watch", "/xds.service.orca.v3.OpenRcaService/StreamCoreMetrics",
}

// recorder remembers the metadata of the last call of each method.
type recorder struct {
	mu   sync.Mutex
	seen map[string]metadata.MD
}

// methods returns the metadata by method.
func (r *recorder) methods() map[string]metadata.MD {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.seen)
}

// recording starts a server that answers calls, offers nothing that a probe asks for, and remembers what came with either.
func recording(t *testing.T) (*servers, *recorder) {
	r := &recorder{seen: map[string]metadata.MD{}}
	srv := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(stream)
		md, _ := metadata.FromIncomingContext(stream.Context())
		r.mu.Lock()
		r.seen[method] = md
		r.mu.Unlock()
		if asksHealth(method) {
			return status.Error(codes.Unimplemented, "unknown service")
		}
		return answer("s0", stream)
	}))
	lis := memconn.Listen(1 << 16)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(lis) }()
	t.Cleanup(func() { srv.Stop(); <-served })
	return &servers{target: "mlb-static:///s0", listeners: map[string]*memconn.Listener{"s0": lis}}, r
}

// all sends a unary call and one on a stream, waits until each probe has been made, and returns what came with each.
func (r *recorder) all(t *testing.T, cc *grpc.ClientConn) map[string]metadata.MD {
	t.Helper()
	infer(t, deadline(t), cc, "m")
	exchange(t, deadline(t), cc, bidi, modelStreamInfer, "m")
	require.Eventually(t, func() bool { return len(r.methods()) >= len(probes)+2 }, patience, time.Millisecond)
	return r.methods()
}

// everywhere is metadata of the application's own, for all calls.
type everywhere map[string]string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (e everywhere) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return e, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (everywhere) RequireTransportSecurity() bool { return false }

// The connection is in plain text: credentials that ask for more would be refused when the channel is made.
func TestProbeMetadataGoesWithProbesAlone(t *testing.T) {
	s, r := recording(t)
	cc := s.clientOf(t, s.target, append(mlbalancer.DialOptions(
		mlbalancer.WithProbeMetadata(map[string]string{"Triton-GRPC-Protocol-health": "k1", "x-probe": "first"}),
		mlbalancer.WithProbeMetadata(map[string]string{"authorization": "Bearer probe", "X-Probe": "second"}),
		mlbalancer.WithProbeMetadata(nil),
	), grpc.WithPerRPCCredentials(everywhere{"x-own": "own"}))...)
	seen := r.all(t, cc)
	want := metadata.MD{
		"triton-grpc-protocol-health": {"k1"}, "x-probe": {"second"}, "authorization": {"Bearer probe"}, "x-own": {"own"},
	}
	for _, method := range probes {
		require.Contains(t, seen, method)
		for key, values := range want {
			assert.Equal(t, values, seen[method][key], "%s of %s", key, method)
		}
	}
	for _, method := range []string{modelInfer, modelStreamInfer} {
		require.Contains(t, seen, method)
		assert.Equal(t, []string{"own"}, seen[method]["x-own"])
		for key := range want {
			if key != "x-own" {
				assert.Empty(t, seen[method][key], "%s of %s", key, method)
			}
		}
	}
}

func TestNoProbeMetadataByDefault(t *testing.T) {
	s, r := recording(t)
	for method, md := range r.all(t, s.client(t)) {
		for key := range md {
			assert.Contains(t, []string{":authority", "content-type", "user-agent", "grpc-accept-encoding"}, key, method)
		}
	}
}

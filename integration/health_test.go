package integration

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/mlbalancer/mlbalancer"
	"github.com/mlbalancer/mlbalancer/integration/rig"
)

// asking are the methods by which the sources ask first.
var asking = []string{rig.HealthWatch, rig.ServerReady, rig.GPUStats, rig.LoadReports}

// token is the credentials of a channel.
type token string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (t token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": string(t)}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (token) RequireTransportSecurity() bool { return false }

var _ credentials.PerRPCCredentials = token("")

func TestProbesCarryTheirMetadataAndTheChannelsCredentials(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const key, value, secret = "triton-grpc-protocol-health", "open", "Bearer x"
		f := rig.New(t, 1)
		b := f.Backends[0]
		var mu sync.Mutex
		seen := map[string][2]string{} // by method: the probe's metadata and the credentials
		see := func(ctx context.Context, method string) {
			mu.Lock()
			defer mu.Unlock()
			seen[method] = [2]string{rig.Header(ctx, key), rig.Header(ctx, "authorization")}
		}
		methods := append([]string{rig.HealthCheck, rig.Statistics}, asking...)
		for _, m := range methods {
			b.Answers(m, func(stream grpc.ServerStream) error {
				see(stream.Context(), m)
				switch m {
				case rig.HealthWatch:
					return rig.Refuses(codes.Unimplemented, "no watch")(stream)
				case rig.ServerReady:
					return stream.SendMsg(&emptypb.Empty{})
				}
				return rig.Hangs(stream)
			})
		}
		b.Handle(func(ctx context.Context, method string) error {
			see(ctx, method)
			return nil
		})
		opts := append(mlbalancer.DialOptions(mlbalancer.WithProbeMetadata(map[string]string{strings.ToUpper(key): value})),
			grpc.WithPerRPCCredentials(token(secret)))
		c := f.Client(rig.Setup{Options: opts})
		require.NoError(t, c.Send("m", limit).Err)
		<-time.After(3 * time.Second)
		want := map[string][2]string{rig.Infer: {"", secret}}
		for _, m := range methods {
			want[m] = [2]string{value, secret}
		}
		mu.Lock()
		defer mu.Unlock()
		assert.Equal(t, want, seen)
	})
}

func TestASourceThatIsRefusedLeavesTheEndpointInUse(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]rig.Answer{
		"unauthenticated":   rig.Refuses(codes.Unauthenticated, "who are you?"),
		"permission denied": rig.Refuses(codes.PermissionDenied, "not you"),
		"restricted": rig.Refuses(codes.Unavailable,
			"This protocol is restricted, expecting header 'triton-grpc-protocol-health'"),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				f := rig.New(t, 2)
				for _, b := range f.Backends {
					for _, m := range append([]string{rig.HealthCheck}, asking...) {
						b.Answers(m, refusal)
					}
				}
				c := f.Client(rig.Setup{Options: mlbalancer.DialOptions()})
				began := time.Now()
				require.NoError(t, c.Send("m", limit).Err)
				require.Zero(t, time.Since(began), "nobody waits for a source that is refused")
				<-time.After(time.Minute)
				c.Ready(2)
				rs := rig.Closed(1, 100, func(i int) rig.Result { return c.Send(rig.Model(i), limit) })
				require.Empty(t, rs.Failed(), "%v", rs)
				require.Len(t, rs.By(), 2)
				for _, b := range f.Backends {
					for _, m := range asking {
						require.Equal(t, 1, b.Asked(m), "%s, which is asked again after minutes", m)
					}
					require.Empty(t, c.Endpoint(b.Addr()).Health.Sources)
				}
			})
		})
	}
}

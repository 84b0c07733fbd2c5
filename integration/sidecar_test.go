package integration

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/mlbalancer/mlbalancer/integration/rig"
	gpb "github.com/mlbalancer/mlbalancer/proto/mlbalancer/gpustats/v1"
)

// What stands beside a server and speaks for it is asked over a connection of its own, which ends with that to the server.
func TestGPUStatsOnAnotherPort(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := rig.New(t, 2)
		for _, b := range f.Backends {
			b.Answers(rig.GPUStats, func(stream grpc.ServerStream) error {
				if err := stream.SendMsg(&gpb.NodeReport{InFlight: proto.Int64(7), ModelsComplete: proto.Bool(true)}); err != nil {
					return err
				}
				<-stream.Context().Done()
				return stream.Context().Err()
			})
		}
		c := f.Client(rig.Setup{Config: `{"loadBalancingConfig":[{"model_aware":{"health":{"gpustatsPort":9101}}}]}`})
		c.Ready(2)
		for _, b := range f.Backends {
			require.Equal(t, 2, b.Open(), "a connection for calls, and one for what stands beside")
			require.Equal(t, 1, b.Asked(rig.GPUStats))
			load := c.Endpoint(b.Addr()).Health.Load
			require.NotNil(t, load)
			require.EqualValues(t, 7, *load.Active)
		}
		f.Backends[0].Stop()
		rig.Eventually(t, func() bool { return f.Backends[0].Open() == 0 }, time.Second, "both connections are closed")
		require.NoError(t, c.Close())
		rig.Eventually(t, func() bool { return f.Backends[1].Open() == 0 }, time.Second, "the other two too")
	})
}

package integration

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	gresolver "google.golang.org/grpc/resolver"

	"github.com/mlbalancer/mlbalancer/balancer"
	"github.com/mlbalancer/mlbalancer/integration/rig"
)

const idleAfter = 200 * time.Millisecond

// sleepy returns a channel that goes idle.
func sleepy(f *rig.Fleet, eps ...gresolver.Endpoint) *rig.Client {
	return f.Client(rig.Setup{
		Endpoints: eps,
		Idles:     true,
		Options:   append([]grpc.DialOption{grpc.WithIdleTimeout(idleAfter)}, interceptors...),
	})
}

// fallAsleep waits until a channel is idle.
func fallAsleep(t *testing.T, c *rig.Client) {
	t.Helper()
	rig.Eventually(t, func() bool { return c.GetState() == connectivity.Idle }, 10*idleAfter, "idle")
}

func TestAChannelThatWasIdleRemembers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := rig.New(t, 3)
		for _, b := range f.Backends {
			b.Takes(20 * time.Millisecond)
		}
		c, other := sleepy(f), sleepy(f)
		for i := range 30 {
			require.NoError(t, c.Send(rig.Model(i), limit).Err)
		}
		before := c.Snapshot()
		for range 3 {
			fallAsleep(t, c)
			rig.Eventually(t, func() bool { return f.Open() == 0 }, time.Second, "connections closed")
			require.Equal(t, balancer.State{Connectivity: "IDLE"}, c.Snapshot())
			require.Equal(t, connectivity.Idle, c.GetState(), "looking does not wake it")
			c.Connect()
			c.Ready(3)
			after := c.Snapshot()
			for i, e := range before.Endpoints {
				require.Equal(t, 20*time.Millisecond, e.Latency)
				require.NotEmpty(t, e.Models)
				require.Equal(t, e, after.Endpoints[i])
			}
		}

		require.NoError(t, other.Send("m", limit).Err)
		calls := uint64(0)
		for _, e := range other.Snapshot().Endpoints {
			for _, n := range e.Picks {
				calls += n
			}
		}
		require.EqualValues(t, 1, calls, "two channels to one target share nothing")
	})
}

func TestANewAddressStartsAnewEvenAfterIdleness(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := rig.New(t, 1)
		b := f.Backends[0]
		b.Takes(20 * time.Millisecond)
		c := sleepy(f, rig.Named("pod", b.AddrN(1)))
		require.NoError(t, c.Send("m", limit).Err)
		require.Equal(t, 20*time.Millisecond, c.Endpoint("pod").Latency)
		fallAsleep(t, c)
		c.Resolve(rig.Named("pod", b.AddrN(2)))
		c.Connect()
		c.Ready(1)
		require.Zero(t, c.Endpoint("pod").Latency)
		require.Empty(t, c.Endpoint("pod").Models)
	})
}

func TestAnUpdateThatIsRejectedForgetsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := rig.New(t, 2)
		b := f.Backends[0]
		b.Takes(20 * time.Millisecond)
		good := []gresolver.Endpoint{rig.Named("pod", b.Addr())}
		c := sleepy(f, good...)
		require.NoError(t, c.Send("m", limit).Err)
		fallAsleep(t, c)
		c.Resolve(rig.Named("pod", b.Addr()), rig.Named("pod", f.Backends[1].Addr()))
		c.Connect()
		r := c.Send("m", limit)
		require.ErrorContains(t, r.Err, `two endpoints are named "pod"`)
		c.Resolve(good...)
		c.Ready(1)
		require.Equal(t, 20*time.Millisecond, c.Endpoint("pod").Latency)
	})
}

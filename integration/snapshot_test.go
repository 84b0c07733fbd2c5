package integration

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/mlbalancer/mlbalancer"
	"github.com/mlbalancer/mlbalancer/balancer"
	"github.com/mlbalancer/mlbalancer/breaker"
	"github.com/mlbalancer/mlbalancer/integration/rig"
	"github.com/mlbalancer/mlbalancer/resolver"
)

func TestSnapshot(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := rig.New(t, 2)
		c := f.Client(rig.Setup{
			Options:   mlbalancer.DialOptions(),
			Endpoints: append(f.Endpoints()[:1], resolver.WithWeight(rig.Named("big", f.Backends[1].Addr()), 3)),
		})
		c.Ready(2)
		f.Backends[0].Takes(10 * time.Millisecond)
		f.Backends[1].Takes(time.Second)
		m := modelAt(t, "b0:1", f.Endpoints()[0], resolver.WithWeight(rig.Named("big", f.Backends[1].Addr()), 3))
		require.NoError(t, c.Send(m, limit).Err)
		require.NoError(t, c.Send(m, limit).Err)

		s := c.Snapshot()
		require.Equal(t, "rig:///fleet", s.Target)
		require.Equal(t, "READY", s.Connectivity)
		require.Positive(t, s.Pickers)
		require.Len(t, s.Endpoints, 2)
		require.InDelta(t, .25, s.Endpoints[0].RingShare, .06)
		require.InDelta(t, 1, s.Endpoints[0].RingShare+s.Endpoints[1].RingShare, 1e-9)
		s.Endpoints[0].RingShare = 0
		require.Equal(t, balancer.EndpointState{
			Name: "b0:1", Addresses: []string{"b0:1"}, Weight: 1, Status: "ready", Latency: 10 * time.Millisecond,
			Breaker: balancer.BreakerState{State: "closed", Counts: breaker.Counts{Calls: 2}},
			Picks:   map[string]uint64{"home": 2}, Models: []balancer.ModelState{{Name: m, State: "unknown", Service: 10 * time.Millisecond}},
			Health: balancer.HealthState{Server: "ready", Sources: map[string]string{"standard": "ready"}, Score: 1, SlowStart: 1},
		}, s.Endpoints[0])
		require.Equal(t, "big", s.Endpoints[1].Name)
		require.Equal(t, []string{"b1:1"}, s.Endpoints[1].Addresses)
		require.EqualValues(t, 3, s.Endpoints[1].Weight)

		js, err := json.Marshal(c.Snapshot())
		require.NoError(t, err)
		var back balancer.State
		require.NoError(t, json.Unmarshal(js, &back))
		require.Equal(t, c.Snapshot(), back)
	})
}

func TestSnapshotOfWhatHasNone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := rig.New(t, 2)
		for name, opts := range map[string][]grpc.DialOption{"bare": nil, "with interceptors": interceptors} {
			idle := f.Client(rig.Setup{Options: opts})
			require.Equal(t, balancer.State{Connectivity: "IDLE"}, idle.Snapshot(), name)
			require.Zero(t, f.Open(), name)

			other := f.Client(rig.Setup{Config: `{"loadBalancingConfig":[{"round_robin":{}}]}`, Options: opts})
			require.NoError(t, other.Send("m", limit).Err)
			before := f.Backends[0].Started() + f.Backends[1].Started()
			_, err := balancer.Snapshot(t.Context(), other.ClientConn)
			require.ErrorContains(t, err, "model_aware: the channel's load-balancing policy is another one", name)
			require.Equal(t, before, f.Backends[0].Started()+f.Backends[1].Started(), "no read-out reaches a server (%s)", name)

			unresolved := f.Client(rig.Setup{Endpoints: silent, Options: opts})
			unresolved.Connect()
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			_, err = balancer.Snapshot(ctx, unresolved.ClientConn)
			require.ErrorContains(t, err, "no snapshot", name)
			require.ErrorContains(t, err, "DeadlineExceeded", name)
			cancel()
			_, err = balancer.Snapshot(ctx, unresolved.ClientConn)
			require.ErrorContains(t, err, "no snapshot", name)

			for _, c := range []*rig.Client{idle, other, unresolved} {
				require.NoError(t, c.Close())
				_, err = balancer.Snapshot(t.Context(), c.ClientConn)
				require.Error(t, err, name)
			}
		}
	})
}

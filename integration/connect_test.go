package integration

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	gresolver "google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer/integration/rig"
	"github.com/mlbalancer/mlbalancer/picker"
)

// patience is how long the calls of an endpoint that connects wait for it.
const patience = 500 * time.Millisecond

var waitForReady = grpc.WaitForReady(true)

func TestCallsWaitForTheFirstUpdate(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := rig.New(t, 2)
		c := f.Client(rig.Setup{Endpoints: silent})
		c.Connect()
		done := make(chan rig.Results, 2)
		for _, opts := range [][]grpc.CallOption{nil, {waitForReady}} {
			go func() {
				done <- rig.Closed(5, 5, func(i int) rig.Result { return c.Send(rig.Model(i), limit, opts...) })
			}()
		}
		<-time.After(time.Second)
		require.Empty(t, done, "nothing to call yet")
		c.Resolve(f.Endpoints()...)
		for range 2 {
			rs := <-done
			require.Empty(t, rs.Failed(), "%v", rs)
			require.Less(t, rs.Slowest(), 1100*time.Millisecond)
		}
	})
}

func TestOnlyCallsThatWaitForReadyOutlastAnOutage(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := rig.New(t, 2)
		for _, b := range f.Backends {
			b.Stop()
		}
		c := f.Client(rig.Setup{})
		require.Equal(t, codes.Unavailable, status.Code(c.Send("m", limit).Err))
		done := make(chan rig.Results, 1)
		go func() {
			done <- rig.Closed(5, 5, func(i int) rig.Result { return c.Send(rig.Model(i), limit, waitForReady) })
		}()
		<-time.After(time.Second)
		r := c.Send("m", limit)
		require.Equal(t, codes.Unavailable, status.Code(r.Err))
		require.ErrorContains(t, r.Err, "connection refused")
		require.ErrorContains(t, r.Err, "0 connected, 2 not")
		require.Zero(t, r.Took)
		require.Empty(t, done)
		f.Backends[1].Start()
		rs := <-done
		require.Empty(t, rs.Failed(), "%v", rs)
		require.Equal(t, map[string]int{"b1": 5}, rs.By())
	})
}

func TestConnectConnectsEverything(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := rig.New(t, 5)
		c := f.Client(rig.Setup{})
		<-time.After(time.Second)
		require.Zero(t, f.Open(), "a channel connects when it is used")
		c.Connect()
		<-time.After(time.Second)
		require.Equal(t, 5, f.Open())
		for _, b := range f.Backends {
			require.Equal(t, 1, b.Accepted())
			require.Zero(t, b.Started())
		}
	})
}

func TestACallWaitsForItsHomeToConnect(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const models = 200
		f := rig.New(t, 10)
		f.Far(patience - 50*time.Millisecond)
		c := f.Client(rig.Setup{Options: interceptors})
		want := rig.ModelAware(t, `{}`, f.Endpoints()...).Map(rig.Models(models))
		rs := rig.Closed(models, models, func(i int) rig.Result { return c.Send(rig.Model(i), limit) })
		require.Empty(t, rs.Failed(), "%v", rs)
		for i, r := range rs {
			require.Equal(t, want[i], r.Backend+":1", "%s at the cold start", rig.Model(i))
		}
	})
}

func TestABlackHoledHomeIsWaitedForOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := rig.New(t, 4)
		f.Backends[2].BlackHole()
		m := modelAt(t, "b2:1", f.Endpoints()...)
		tries := grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: 2 * time.Second, Backoff: backoff.DefaultConfig})
		c := f.Client(rig.Setup{Options: append([]grpc.DialOption{tries}, interceptors...)})
		r, d := decide(c, m)
		require.NoError(t, r.Err)
		require.InDelta(t, patience, r.Took, float64(20*time.Millisecond))
		require.Equal(t, picker.Replica, d.Reason)
		for range 10 {
			again, e := decide(c, m)
			require.NoError(t, again.Err)
			require.Zero(t, again.Took)
			require.Equal(t, d.Endpoint, e.Endpoint)
		}
		f.Backends[2].Start()
		rig.Eventually(t, func() bool { _, e := decide(c, m); return e.Endpoint == "b2:1" }, time.Minute, "the home is back")
	})
}

// Homes that begin to connect one after the other are each waited for as long as any.
func TestEachHomeHasItsOwnPatience(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := rig.New(t, 4)
		eps := f.Endpoints()
		f.Backends[2].BlackHole()
		f.Backends[3].BlackHole()
		c := f.Client(rig.Setup{Endpoints: eps[:3], Options: interceptors})
		c.Ready(2)
		<-time.After(patience * 4 / 5)
		m := modelAt(t, "b3:1", eps...)
		c.Resolve(eps...)
		r, d := decide(c, m)
		require.NoError(t, r.Err)
		require.InDelta(t, patience, r.Took, float64(20*time.Millisecond))
		require.Equal(t, picker.Replica, d.Reason)
	})
}

// Of the addresses of an endpoint the one that connects first serves, even if another one connects at the same moment.
func TestTwoAddressesThatConnectAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const stagger = 250 * time.Millisecond // between attempts to connect to the addresses of one endpoint (RFC 8305)
		f := rig.New(t, 2)
		late := grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			wait := stagger
			if addr == "b0:1" {
				wait *= 2
			}
			if err := rig.Wait(ctx, wait); err != nil {
				return nil, err
			}
			return f.DialContext(ctx, addr)
		})
		for range 100 {
			c := f.Client(rig.Setup{Endpoints: []gresolver.Endpoint{rig.At("b0:1", "b1:1")}, Options: []grpc.DialOption{late}})
			require.NoError(t, c.Send("m", limit).Err)
			<-time.After(2 * patience)
			r := c.Send("m", limit)
			require.NoError(t, r.Err)
			require.Zero(t, r.Took)
			require.Equal(t, 1, f.Open())
			require.NoError(t, c.Close())
			rig.Eventually(t, func() bool { return f.Open() == 0 }, time.Second, "connections closed")
		}
	})
}

func TestAFlapMovesNothingForGood(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const models = 300
		const config = `{"loadBalancingConfig":[{"model_aware":{"slowStart":{"window":"0s"}}}]}`
		f := rig.New(t, 5)
		c := f.Client(rig.Setup{Config: config, Options: interceptors})
		c.Ready(5)
		mapped := func() []string {
			to := make([]string, models)
			for i := range to {
				r, d := decide(c, rig.Model(i))
				require.NoError(t, r.Err)
				to[i] = d.Endpoint
			}
			return to
		}
		before, state := mapped(), c.Snapshot()
		f.Far(patience - 50*time.Millisecond)
		f.Backends[3].Restart() // its models wait for it
		require.Equal(t, before, mapped())
		require.Equal(t, 2, f.Backends[3].Accepted())
		f.Backends[3].Stop()
		<-time.After(time.Second)
		for i, addr := range mapped() {
			if before[i] == "b3:1" {
				require.NotEqual(t, "b3:1", addr)
			} else {
				require.Equal(t, before[i], addr, "%s moves though its home is up", rig.Model(i))
			}
		}
		f.Backends[3].Start()
		c.Ready(5)
		require.Equal(t, before, mapped())
		after := c.Snapshot()
		for i, e := range state.Endpoints {
			require.Equal(t, e.RingShare, after.Endpoints[i].RingShare)
		}
		require.LessOrEqual(t, after.Pickers-state.Pickers, uint64(8), "pickers for two losses and two returns")
	})
}

func TestClientSideHealthChecking(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const models = 200
		const config = `{"loadBalancingConfig":[{"model_aware":{"health":{"panicThreshold":0}}}],"healthCheckConfig":{"serviceName":""}}`
		f := rig.New(t, 4)
		c := f.Client(rig.Setup{Config: config})
		c.Ready(4)
		mapped := func() []string {
			rs := rig.Closed(1, models, func(i int) rig.Result { return c.Send(rig.Model(i), limit) })
			require.Empty(t, rs.Failed(), "%v", rs)
			to := make([]string, models)
			for i, r := range rs {
				to[i] = r.Backend
			}
			return to
		}
		before := mapped()
		f.Backends[1].Serving(false)
		c.Ready(3)
		require.Equal(t, "not ready", c.Endpoint("b1:1").Health.Server)
		require.NotContains(t, mapped(), "b1")
		require.Equal(t, 1, f.Backends[1].Open(), "the connection stays")
		f.Backends[1].Serving(true)
		c.Ready(4)
		require.Equal(t, before, mapped())
		require.Equal(t, 1, f.Backends[1].Accepted())

		for _, b := range f.Backends {
			b.Serving(false)
		}
		c.Ready(0)
		r := c.Send("m", limit)
		require.Equal(t, codes.Unavailable, status.Code(r.Err))
		require.ErrorContains(t, r.Err, "of 4 connected endpoints none takes the call: by their health 4 take no calls")
		require.Zero(t, r.Took)
		done := make(chan rig.Result, 1)
		go func() { done <- c.Send("m", limit, waitForReady) }()
		<-time.After(time.Second)
		require.Empty(t, done)
		f.Backends[0].Serving(true)
		require.NoError(t, (<-done).Err)
	})
}

func TestOneChannelAnotherPolicyAndBack(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := rig.New(t, 3)
		for _, b := range f.Backends {
			b.Takes(100 * time.Millisecond)
		}
		c := f.Client(rig.Setup{Options: interceptors})
		c.Ready(3)
		require.NoError(t, c.Send("m", limit).Err)
		at := home(t, `{}`, "m", f.Endpoints()...)
		done := make(chan rig.Result, 1)
		go func() { done <- c.Send("m", limit) }()
		<-time.After(50 * time.Millisecond)
		c.ResolveConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`, f.Endpoints()...)
		require.NoError(t, (<-done).Err, "a call that was under way")
		for _, b := range f.Backends {
			b.Handle(nil)
		}
		rig.Eventually(t, func() bool {
			rs := rig.Closed(1, 6, func(int) rig.Result { return c.Send("m", limit) })
			require.Empty(t, rs.Failed(), "%v", rs)
			return len(rs.By()) == 3
		}, limit, "round_robin in force")
		require.NoError(t, c.ResolveConfig(`{}`, f.Endpoints()...).Err)
		c.Ready(3)
		e := c.Endpoint(at)
		require.GreaterOrEqual(t, e.Picks["home"], uint64(2), "it remembers the calls before")
		require.Zero(t, e.InFlight, "the call that outlived its policy is counted out")
	})
}

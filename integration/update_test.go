package integration

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	gresolver "google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer/integration/rig"
	"github.com/mlbalancer/mlbalancer/resolver"
)

func TestWhatIsWrongLeavesTheLastGoodInForce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const models = 50
		f := rig.New(t, 4)
		eps := f.Endpoints()
		for i := range eps {
			eps[i] = resolver.WithName(eps[i], fmt.Sprintf("pod-%d", i))
		}
		c := f.Client(rig.Setup{Endpoints: eps[:3]})
		c.Ready(3)
		require.NoError(t, c.ResolveConfig(`{"ring":{"virtualNodes":33}}`, eps[:3]...).Err)
		want := c.Snapshot()
		mapped := func() []string {
			rs := rig.Closed(1, models, func(i int) rig.Result { return c.Send(rig.Model(i), limit) })
			require.Empty(t, rs.Failed(), "%v", rs)
			to := make([]string, models)
			for i, r := range rs {
				to[i] = r.Backend + ":1"
			}
			return to
		}
		before := mapped()
		require.Equal(t, rig.ModelAware(t, `{"ring":{"virtualNodes":33}}`, eps[:3]...).Map(rig.Models(models)), before)
		for what, wrong := range map[string]func(){
			"resolver error": func() { c.ResolveError(errors.New("no answer")) },
			"config":         func() { require.Error(t, c.ResolveConfig(`{"ring":{"virtualNodes":0}}`, eps[:3]...).Err) },
			"a name twice": func() {
				c.Resolve(append([]gresolver.Endpoint{rig.Named("pod-0", "b3:1")}, eps[:3]...)...)
			},
			"a new endpoint beside a name twice": func() {
				c.Resolve(eps[3], eps[0], rig.Named("pod-0", "b1:1"))
			},
		} {
			wrong()
			<-time.After(time.Second)
			require.Equal(t, before, mapped(), what)
			now := c.Snapshot()
			require.Equal(t, want.Pickers, now.Pickers, what)
			for i, e := range now.Endpoints {
				require.Equal(t, want.Endpoints[i].RingShare, e.RingShare, what)
			}
			require.Zero(t, f.Backends[3].Accepted(), what)
		}
		require.Positive(t, logged.Count("two endpoints are named", `"pod-0"`, "b3:1", "b0:1"))
	})
}

func TestANameTwiceAtFirstIsAnError(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := rig.New(t, 2)
		c := f.Client(rig.Setup{Endpoints: []gresolver.Endpoint{rig.Named("x", "b0:1"), rig.Named("x", "b1:1")}})
		r := c.Send("m", limit)
		require.Equal(t, codes.Unavailable, status.Code(r.Err))
		require.ErrorContains(t, r.Err, `two endpoints are named "x" (b0:1 and b1:1), want each name once`)
		require.Zero(t, r.Took)
		c.Resolve(rig.Named("x", "b0:1"), rig.Named("y", "b1:1"))
		require.NoError(t, c.Send("m", limit).Err)
	})
}

func TestWeights(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const models = 600
		f := rig.New(t, 3)
		eps := f.Endpoints()
		c := f.Client(rig.Setup{Endpoints: eps})
		c.Ready(3)
		weigh := func(w ...float64) map[string]int {
			for i := range eps {
				eps[i] = resolver.WithWeight(eps[i], w[i])
			}
			c.Resolve(eps...)
			rs := rig.Closed(1, models, func(i int) rig.Result { return c.Send(rig.Model(i), limit) })
			require.Empty(t, rs.Failed(), "%v", rs)
			return rs.By()
		}
		by := weigh(1, 2, 3)
		assert.InDelta(t, models/6, by["b0"], models*.06)
		assert.InDelta(t, models/3, by["b1"], models*.08)
		assert.InDelta(t, models/2, by["b2"], models*.08)
		by = weigh(1, 0, 1)
		assert.Zero(t, by["b1"])
		assert.InDelta(t, models/2, by["b0"], models*.1)
		assert.Equal(t, "ready", c.Endpoint("b1:1").Status)

		for i := range eps {
			eps[i] = resolver.WithWeight(eps[i], 0)
		}
		c.Resolve(eps...)
		for _, model := range []string{"m", ""} {
			r := c.Send(model, limit)
			require.Equal(t, codes.Unavailable, status.Code(r.Err))
			require.ErrorContains(t, r.Err, "none of 3 connected endpoints may be used")
			require.Zero(t, r.Took)
		}
		weigh(1, 1, 1)
		for _, b := range f.Backends {
			assert.Equal(t, 1, b.Accepted())
		}
	})
}

// A call under way outlives the listing of its endpoint, and the read-out never mixes two updates.
func TestUpdatesUnderReadOutsAndCalls(t *testing.T) {
	t.Parallel()
	f := rig.New(t, 20)
	for _, b := range f.Backends {
		b.Takes(5 * time.Millisecond)
	}
	c := f.Client(rig.Setup{})
	c.Ready(20)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	var beside sync.WaitGroup
	beside.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			c.Resolve(f.Endpoints()[n%10 : 11+n%7]...)
		}
	})
	beside.Go(func() {
		for ctx.Err() == nil {
			s := c.Snapshot()
			share := 0.
			for _, e := range s.Endpoints {
				share += e.RingShare
			}
			assert.InDelta(t, 1, share, 1e-9, "all shares of the ring, of %d endpoints", len(s.Endpoints))
		}
	})
	rs := rig.Until(ctx, 4, func(i int) rig.Result { return c.Send(rig.Model(i), limit) })
	beside.Wait()
	require.Empty(t, rs.Failed(), "%v", rs)
}

func TestCloseUnderCalls(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const calls = 50
		f := rig.New(t, 3)
		for _, b := range f.Backends {
			b.Takes(time.Minute)
		}
		c := f.Client(rig.Setup{Options: interceptors})
		c.Ready(3)
		done := make(chan rig.Results, 1)
		go func() {
			done <- rig.Closed(calls, calls, func(i int) rig.Result { return c.Send(rig.Model(i), 2*time.Minute) })
		}()
		running := func() (n int) {
			for _, b := range f.Backends {
				n += b.Running()
			}
			return n
		}
		rig.Eventually(t, func() bool { return running() == calls }, limit, "all calls under way")
		inFlight := 0
		for _, e := range c.Snapshot().Endpoints {
			inFlight += e.InFlight
		}
		require.Equal(t, calls, inFlight)
		require.NoError(t, c.Close())
		rs := <-done
		require.Equal(t, map[codes.Code]int{codes.Canceled: calls}, rs.Codes(), "%v", rs)
		rig.Eventually(t, func() bool { return running() == 0 }, time.Second, "servers hear of it")
		require.Equal(t, codes.Canceled, status.Code(c.Send("m", limit).Err), "a call after Close")
	})
}

package cases

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer"
	"github.com/mlbalancer/mlbalancer/integration/rig"
)

const (
	realRate  = 200
	realTakes = 20 * time.Millisecond
)

// taking returns a handler that takes a time, and then does what another one does, if it is not nil.
func taking(d time.Duration, then rig.Handler) rig.Handler {
	return func(ctx context.Context, method string) error {
		if err := rig.Wait(ctx, d); err != nil || then == nil {
			return err
		}
		return then(ctx, method)
	}
}

// What Triton says while it stops.
const (
	tritonStopping = "Server is stopping, scheduler for model has stopped accepting new inference requests"
	tritonGone     = "Request for unknown model: 'm' has no available versions"
)

// stopLikeTriton has a server stop and come back as Triton does; it returns when it first refused calls and when it was back.
func stopLikeTriton(b *rig.Backend, v *rig.Visits) (stopped, back time.Time) {
	stopped = time.Now()
	b.Handle(v.Around(fails(codes.Unavailable, tritonStopping)))
	rig.For(50*time.Millisecond, tick, func(int) {})
	b.Handle(v.Around(taking(500*time.Microsecond, fails(codes.NotFound, tritonGone))))
	rig.For(5*time.Second, tick, func(int) {})
	b.Stop()
	rig.For(4*time.Second, tick, func(int) {})
	b.Takes(realTakes)
	b.Start()
	return stopped, time.Now()
}

// A server that stops must not become a hole that swallows calls as fast as it refuses them (seen on Triton).
func TestREAL01(t *testing.T) {
	t.Parallel()
	for _, retries := range []bool{true, false} {
		for _, waits := range []bool{false, true} {
			t.Run(fmt.Sprintf("retries %v, waiting %v", retries, waits), func(t *testing.T) {
				inBubble(t, func(t *testing.T) { testStops(t, retries, waits) })
			})
		}
	}
	t.Run("both", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			f := rig.New(t, 2)
			c := f.Client(rig.Setup{Options: dialOptions(`{}`)})
			c.Ready(2)
			for _, b := range f.Backends {
				b.Fails(codes.NotFound, tritonGone)
			}
			r := c.Send("m", limit)
			require.Equal(t, codes.NotFound, status.Code(r.Err))
			require.Equal(t, tritonGone, status.Convert(r.Err).Message())
			require.Equal(t, 2, f.Backends[0].Started()+f.Backends[1].Started())
		})
	})
}

func testStops(t *testing.T, retries, waits bool) {
	var opts []mlbalancer.Option
	if !retries {
		opts = append(opts, mlbalancer.WithoutRetry())
	}
	f := rig.New(t, 2)
	c := f.Client(rig.Setup{Options: dialOptions(`{"inference":{"strategy":"p2c"},"slowStart":{"window":"0s"}}`, opts...)})
	c.Ready(2)
	for _, b := range f.Backends {
		b.Takes(realTakes)
	}
	load := atRate(t, realRate, func(int) rig.Result { return c.Send("m", limit, grpc.WaitForReady(waits)) })
	var backs []time.Time
	for _, b := range f.Backends {
		rig.For(5*time.Second, tick, func(int) {})
		var v rig.Visits
		stopped, back := stopLikeTriton(b, &v)
		backs = append(backs, back)
		if retries {
			assert.LessOrEqual(t, v.Between(stopped, back), 20, "attempts at %s", b.Name)
		}
		rig.For(5*time.Second, tick, func(int) {})
	}
	rs := load.stop()
	if retries {
		assert.Empty(t, rs.Failed(), "%v", rs)
	} else {
		assert.LessOrEqual(t, len(rs.Failed()), 2*10, "%v", rs)
	}
	for i, back := range backs {
		share := rs.Between(back.Add(3*time.Second), back.Add(5*time.Second)).Share(f.Backends[i].Name)
		assert.GreaterOrEqual(t, share, .4, "%s is back", f.Backends[i].Name)
	}
}

// A server that says that it is not ready while it loads a model must keep the models that are (seen on Triton with strict readiness).
func TestREAL02(t *testing.T) {
	t.Parallel()
	for _, checks := range []bool{false, true} {
		for _, strategy := range strategies {
			t.Run(fmt.Sprintf("%s, healthCheckConfig %v", strategy, checks), func(t *testing.T) {
				inBubble(t, func(t *testing.T) { testLoadsNowAndThen(t, strategy, checks) })
			})
		}
	}
}

func testLoadsNowAndThen(t *testing.T, strategy string, checks bool) {
	config := rig.ServiceConfig(fmt.Sprintf(`{"inference":{"strategy":%q}}`, strategy))
	if checks {
		config = checked(fmt.Sprintf(`{"inference":{"strategy":%q}}`, strategy))
	}
	f := rig.New(t, 2)
	b := f.Backends[0]
	model := homes(t, f, 0)[0]
	var ready [2]atomic.Bool
	for i, b := range f.Backends {
		ready[i].Store(true)
		b.Takes(realTakes)
		b.HasModels(ready[i].Load, model)
		b.Answers(rig.HealthWatch, rig.Refuses(codes.Unimplemented, "no watch"))
	}
	c := f.Client(rig.Setup{Options: dialOptions(config)})
	c.Ready(2)
	load := atRate(t, realRate, func(int) rig.Result { return c.Send(model, limit) })
	began := time.Now()
	says := map[string]int{} // of the server as a whole
	for now := time.Duration(0); now < 20*time.Second; now = time.Since(began) {
		loads := now%(6*time.Second) >= 3*time.Second
		ready[0].Store(!loads)
		b.Serving(!loads)
		pause(t.Context(), tick)
		e := c.Endpoint(b.Addr())
		says[e.Health.Server]++
		require.Len(t, e.Models, 2, "name and name with version")
		require.Equal(t, "ready", e.Models[0].State, "after %v", now)
		if since := now % (3 * time.Second); since > 1500*time.Millisecond {
			want := map[bool]string{false: "ready", true: "not ready"}[loads]
			require.Equal(t, want, e.Health.Server, "after %v", now)
			require.Equal(t, map[string]string{"standard": want, "oip": want}, e.Health.Sources, "after %v", now)
		}
	}
	rs := load.stop()
	t.Logf("%v; the server is %v", rs.By(), says)
	assert.Empty(t, rs.Failed(), "%v", rs)
	assert.Empty(t, c.Snapshot().Transitions)
	want := .5
	if strategy == "ring" {
		want = 1 // it is at home there
	}
	assert.InDelta(t, want, rs.Share(b.Name), .05)
}

// CANCELLED that nobody asked for is the server's failure; that of the caller is nobody's (seen on MLServer and KServe).
func TestREAL03(t *testing.T) {
	eachStrategy(t, `"health":{}`, func(t *testing.T, config string) {
		f := rig.New(t, 2)
		c := f.Client(rig.Setup{Options: dialOptions(config)})
		c.Ready(2)
		b := f.Backends[0]
		load := atRate(t, realRate, mix(c))
		rig.For(time.Second, tick, func(int) {})
		require.Zero(t, c.Endpoint(b.Addr()).Breaker.Counts.Failures)
		b.Fails(codes.Canceled, "")
		opened := becomes(t, c, b, "open", time.Second)
		assert.Less(t, time.Since(opened), time.Second)
		rig.For(time.Until(opened.Add(time.Second)), tick, func(int) {})
		b.Handle(nil)
		rig.For(5*time.Second, tick, func(int) {})
		rs := load.stop()
		assert.Empty(t, rs.Failed(), "%v", rs)
		require.Equal(t, "closed", state(c, b))

		for _, b := range f.Backends {
			b.Handle(hang)
		}
		before := c.Snapshot()
		started := f.Backends[0].Started() + f.Backends[1].Started()
		rs = rig.Closed(10, 200, func(i int) rig.Result {
			return rig.Timed(limit, func(ctx context.Context) (string, error) {
				ctx, cancel := context.WithCancel(ctx)
				timer := time.AfterFunc(tick, cancel)
				defer timer.Stop()
				return c.Call(ctx, rig.Model(i%100))
			})
		})
		require.Equal(t, map[codes.Code]int{codes.Canceled: 200}, rs.Codes())
		require.Equal(t, 200, f.Backends[0].Started()+f.Backends[1].Started()-started, "none is tried again")
		after := c.Snapshot()
		for i := range after.Endpoints {
			require.Equal(t, before.Endpoints[i].Breaker.Counts.Failures, after.Endpoints[i].Breaker.Counts.Failures)
			require.Equal(t, before.Endpoints[i].Breaker.Counts.Calls, after.Endpoints[i].Breaker.Counts.Calls)
		}
		require.Equal(t, before.Transitions, after.Transitions)
	})
}

// A model whose process has died must leave the server alone, and come back (seen on Triton).
func TestREAL04(t *testing.T) {
	eachStrategy(t, `"health":{}`, func(t *testing.T, config string) {
		f := rig.New(t, 2)
		c := f.Client(rig.Setup{Options: dialOptions(config)})
		c.Ready(2)
		b, models := f.Backends[0], homes(t, f, 0)
		broken, sound := models[0], models[1]
		var dead atomic.Bool
		var v rig.Visits // of m while it is dead
		stub := v.Around(taking(time.Millisecond, fails(codes.Internal, "Stub process 'm_0_0' is not healthy.")))
		for _, s := range f.Backends {
			s.Handle(func(ctx context.Context, method string) error {
				if s == b && dead.Load() && rig.Header(ctx, rig.ModelHeader) == broken {
					return stub(ctx, method)
				}
				return rig.Wait(ctx, 5*time.Millisecond)
			})
		}
		loads := map[string]*background{}
		for _, m := range models[:2] {
			loads[m] = atRate(t, realRate, func(int) rig.Result { return c.Send(m, limit) })
		}
		began := time.Now()
		at := func(s time.Duration) time.Time { return began.Add(s * time.Second) }
		rig.For(5*time.Second, tick, func(int) {})
		dead.Store(true)
		fell := time.Now()
		rig.For(10*time.Second, tick, func(int) {})
		dead.Store(false)
		rose := time.Now()
		left := time.Duration(0)
		for _, m := range c.Endpoint(b.Addr()).Models {
			if m.Name == broken {
				require.NotNil(t, m.Breaker)
				left = m.Breaker.OpenLeft
			}
		}
		rig.For(20*time.Second, tick, func(int) {})
		m, n := loads[broken].stop(), loads[sound].stop()

		assert.Empty(t, m.Failed(), "%v", m)
		assert.Empty(t, n.Failed(), "%v", n)
		var opened time.Time
		for _, tr := range c.Snapshot().Transitions {
			require.Equal(t, broken, tr.Model, "only the model's breaker changes")
			require.Equal(t, b.Addr(), tr.Endpoint)
			if opened.IsZero() {
				opened = tr.Time
			}
		}
		require.False(t, opened.IsZero(), "m has left")
		assert.LessOrEqual(t, v.Between(fell, opened.Add(time.Nanosecond)), 10, "calls until it left")
		was, meanwhile := n.Between(at(1), at(5)).Share(b.Name), n.Between(at(5), at(15)).Share(b.Name)
		assert.GreaterOrEqual(t, meanwhile, was-.05, "n keeps its share")
		if strings.Contains(config, "ring") { // p2c gives n the room that m leaves
			assert.LessOrEqual(t, meanwhile, was+.05, "n keeps its share")
		}
		var back time.Time
		for _, r := range m.Between(rose, at(100)) {
			if r.Backend == b.Name && (back.IsZero() || r.Sent.Before(back)) {
				back = r.Sent
			}
		}
		require.False(t, back.IsZero(), "m is back")
		assert.LessOrEqual(t, back.Sub(rose), left+time.Second, "within the open time under way")
		assert.GreaterOrEqual(t, m.Between(rose.Add(left+3*time.Second), at(100)).Share(b.Name), .8*m.Between(at(1), at(5)).Share(b.Name), "m has its share again")
	})
}

// A model that is not ready is not the caller's fault, though MLServer says it with the code that is for those.
func TestREAL05(t *testing.T) {
	eachStrategy(t, `"health":{}`, func(t *testing.T, config string) {
		f := rig.New(t, 2)
		c := f.Client(rig.Setup{Options: dialOptions(config)})
		c.Ready(2)
		b := f.Backends[0]
		b.Fails(codes.InvalidArgument, "Model m with version  is not ready yet.")
		model := homes(t, f, 0)[0]
		rs := during(t, 5*time.Second, realRate, func(int) rig.Result { return c.Send(model, limit) })
		assert.Empty(t, rs.Failed(), "%v", rs)
		assert.Positive(t, b.Started())

		for _, s := range f.Backends {
			s.Fails(codes.InvalidArgument, "Invalid datatype")
		}
		before := f.Backends[0].Started() + f.Backends[1].Started()
		rs = rig.Closed(2, 100, func(i int) rig.Result { return c.Send(rig.Model(i), limit) })
		require.Equal(t, map[codes.Code]int{codes.InvalidArgument: 100}, rs.Codes())
		for _, r := range rs {
			require.Equal(t, "Invalid datatype", status.Convert(r.Err).Message())
		}
		require.Equal(t, 100, f.Backends[0].Started()+f.Backends[1].Started()-before, "none is tried again")
		require.Empty(t, c.Snapshot().Transitions)
	})
}

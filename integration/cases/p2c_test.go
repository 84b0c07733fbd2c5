package cases

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	gresolver "google.golang.org/grpc/resolver"

	"github.com/mlbalancer/mlbalancer/integration/rig"
	"github.com/mlbalancer/mlbalancer/resolver"
)

// p2c is the config that places all calls by load.
const p2c = `{"inference":{"strategy":"p2c"}}`

// placing is what places calls for a model that all servers hold by load.
type placing struct {
	inference string        // the section of the policy's config
	informed  bool          // servers say what they hold
	forgets   time.Duration // in how long an endpoint that was slow is tried again, and has half its share
}

// config returns the policy's config, with more sections if sections is not empty.
func (p placing) config(sections string) string {
	return `{"inference":` + p.inference + sections + `}`
}

// byLoad runs a test with p2c, and with affinity at work.
func byLoad(t *testing.T, test func(t *testing.T, p placing)) {
	t.Parallel()
	t.Run("p2c", func(t *testing.T) {
		inBubble(t, func(t *testing.T) { test(t, placing{`{"strategy":"p2c"}`, false, 5 * time.Second}) })
	})
	t.Run("affinity", func(t *testing.T) { inBubble(t, func(t *testing.T) { test(t, placing{`{}`, true, time.Minute}) }) })
}

// fleet starts servers that hold the model m.
func (p placing) fleet(t *testing.T, n int) *rig.Fleet {
	f := rig.New(t, n)
	for _, b := range f.Backends {
		if p.informed {
			b.Keeps(rig.Keeping{}, "m")
		}
	}
	return f
}

// ready waits until all that a client is to know of n endpoints is known.
func (p placing) ready(c *rig.Client, n int) {
	if p.informed {
		c.Informed(n)
		return
	}
	c.Ready(n)
}

// client returns a channel to a fleet of n that is ready.
func (p placing) client(f *rig.Fleet, n int) *rig.Client {
	c := f.Client(rig.Setup{Config: p.config("")})
	p.ready(c, n)
	return c
}

// share returns a server's calls as a part of its fair share.
func share(rs rig.Results, backend string, servers int) float64 {
	return rs.Share(backend) * float64(servers)
}

// Ties must not always go to the same backend (kubernetes-sigs/gateway-api-inference-extension#1204).
func TestP2C01(t *testing.T) { byLoad(t, testP2C01) }

func testP2C01(t *testing.T, p placing) {
	f := p.fleet(t, 8)
	for _, b := range f.Backends {
		b.Takes(time.Millisecond)
	}
	c := p.client(f, 8)
	for _, inFlight := range []int{1, 2} {
		rs := rig.Closed(inFlight, 8000, func(int) rig.Result { return c.Send("m", limit) })
		require.Empty(t, rs.Failed(), "%v", rs)
		by := rs.By()
		t.Logf("%d in flight: %v", inFlight, by)
		for _, b := range f.Backends {
			assert.True(t, 500 <= by[b.Name] && by[b.Name] <= 1750, "%s: %d calls of 8000 with %d in flight", b.Name, by[b.Name], inFlight)
		}
	}
}

// callKey is the metadata key that numbers a call for its handler.
const callKey = "call"

// numbered sends a call that tells its handler a number.
func numbered(c *rig.Client, i int, limit time.Duration) rig.Result {
	return rig.Timed(limit, func(ctx context.Context) (string, error) {
		return c.Call(metadata.AppendToOutgoingContext(ctx, callKey, strconv.Itoa(i)), "m")
	})
}

func number(ctx context.Context) int {
	i, err := strconv.Atoi(rig.Header(ctx, callKey))
	if err != nil {
		return -1
	}
	return i
}

// A caller that gives up must not lower the score of a healthy backend (go-kratos/kratos#3834), nor move
// its breaker. That no failure is exported joins with metrics.
func TestP2C02(t *testing.T) {
	t.Run("cancelled", func(t *testing.T) {
		byLoad(t, func(t *testing.T, p placing) {
			f := p.fleet(t, 5)
			var pending sync.Map // from the call's number to what cancels it
			for i, b := range f.Backends {
				b.Handle(func(ctx context.Context, _ string) error {
					n := number(ctx)
					if cancel, ok := pending.Load(n); ok && i == 1 && n%2 == 0 {
						stop := time.AfterFunc(5*time.Millisecond, cancel.(context.CancelFunc))
						defer stop.Stop()
					}
					return rig.Wait(ctx, 20*time.Millisecond)
				})
			}
			c := p.client(f, 5)
			rs := during(t, 5*time.Second, 200, func(i int) rig.Result {
				return rig.Timed(limit, func(ctx context.Context) (string, error) {
					ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(ctx, callKey, strconv.Itoa(i)))
					defer cancel()
					pending.Store(i, cancel)
					defer pending.Delete(i)
					return c.Call(ctx, "m")
				})
			})
			codesSeen := rs.Codes()
			require.Greater(t, codesSeen[codes.Canceled], 50, "%v", codesSeen)
			require.Len(t, codesSeen, 2, "%v", codesSeen)

			rs = rig.Closed(10, 5000, func(i int) rig.Result { return numbered(c, -1, limit) })
			require.Empty(t, rs.Failed(), "%v", rs)
			assert.GreaterOrEqual(t, rs.By()["b1"], 650, "%v", rs.By())
			assert.Empty(t, c.Snapshot().Transitions, "no breaker has moved")
		})
	})
	t.Run("control: too slow for the deadline", func(t *testing.T) {
		byLoad(t, func(t *testing.T, p placing) {
			f := p.fleet(t, 5)
			for i, b := range f.Backends {
				b.Handle(func(ctx context.Context, _ string) error {
					if i == 2 && b.Started()%2 == 0 {
						return rig.Wait(ctx, 300*time.Millisecond)
					}
					return rig.Wait(ctx, 20*time.Millisecond)
				})
			}
			c := p.client(f, 5)
			first := during(t, time.Second, 200, func(i int) rig.Result { return c.Send("m", 200*time.Millisecond) })
			require.Positive(t, first.Codes()[codes.DeadlineExceeded])
			before := f.Backends[2].Started()
			rs := during(t, 4*time.Second, 200, func(i int) rig.Result { return c.Send("m", 200*time.Millisecond) })
			slow := float64(f.Backends[2].Started()-before) / float64(len(rs))
			assert.Less(t, slow*5, .6, "b2's part of its fair share")
		})
	})
}

// The latency average must age (apache/shenyu#6427). How slow an endpoint has proved is what affinity forgets with a time constant of 15 s, so the
// slower it was the longer it is left alone: where calls are few, each that tries it is seen in the slowest.
func TestP2C03(t *testing.T) {
	start := func(t *testing.T, p placing) (*rig.Fleet, *rig.Client, func(d time.Duration) rig.Results) {
		f := p.fleet(t, 3)
		for _, b := range f.Backends {
			b.Takes(5 * time.Millisecond)
		}
		c := p.client(f, 3)
		return f, c, func(d time.Duration) rig.Results {
			rs := during(t, d, 300, func(int) rig.Result { return c.Send("m", limit) })
			require.Empty(t, rs.Failed(), "%v", rs)
			return rs
		}
	}
	t.Run("slow and back", func(t *testing.T) {
		byLoad(t, func(t *testing.T, p placing) {
			f, _, load := start(t, p)
			load(2 * time.Second)
			f.Backends[1].Takes(200 * time.Millisecond)
			load(2 * time.Second)
			assert.LessOrEqual(t, share(load(time.Second), "b1", 3), .4, "in the third second of being slow")
			load(2 * time.Second)
			f.Backends[1].Takes(5 * time.Millisecond)
			load(p.forgets - time.Second)
			assert.GreaterOrEqual(t, share(load(time.Second), "b1", 3), .5, "in the last second of %v after the recovery", p.forgets)
		})
	})
	t.Run("without traffic", func(t *testing.T) {
		byLoad(t, func(t *testing.T, p placing) {
			f, c, load := start(t, p)
			load(time.Second)
			f.Backends[1].Takes(200 * time.Millisecond)
			load(2 * time.Second)
			eps := f.Endpoints()
			eps[1] = resolver.WithWeight(eps[1], 0)
			c.Resolve(eps...)
			f.Backends[1].Takes(5 * time.Millisecond)
			before := f.Backends[1].Started()
			load(5 * time.Second)
			require.Equal(t, before, f.Backends[1].Started(), "calls to an endpoint of weight 0")
			c.Resolve(f.Endpoints()...)
			traffic := atRate(t, 300, func(int) rig.Result { return c.Send("m", limit) })
			rig.Eventually(t, func() bool { return f.Backends[1].Started() > before }, p.forgets, "the endpoint is tried again")
			traffic.stop()
		})
	})
}

// A slow backend must get less, however short or long the times are (mosn/mosn#2305). The second run is at half the case's scale.
func TestP2C04(t *testing.T) {
	for name, run := range map[string]struct {
		fast, slow, warmUp, measured time.Duration
		rate                         float64
	}{
		"short": {2 * time.Millisecond, 400 * time.Millisecond, 5 * time.Second, 10 * time.Second, 500},
		"long":  {50 * time.Millisecond, 1500 * time.Millisecond, 5 * time.Second, 25 * time.Second, 40},
	} {
		t.Run(name, func(t *testing.T) {
			byLoad(t, func(t *testing.T, p placing) {
				f := p.fleet(t, 4)
				for _, b := range f.Backends {
					b.Takes(run.fast)
				}
				f.Backends[3].Takes(run.slow)
				c := p.client(f, 4)
				call := func(int) rig.Result { return c.Send("m", rig.Patience) }
				during(t, run.warmUp, run.rate, call)
				rs := during(t, run.measured, run.rate, call)
				require.Empty(t, rs.Failed(), "%v", rs)
				t.Logf("%v", rs.By())
				assert.LessOrEqual(t, share(rs, "b3", 4), .25, "%v", rs.By())
			})
		})
	}
}

// Clients that start together must not pick the same backends first (grpc/grpc-go#8104). The 400 clients come in four groups, each
// created at once: what they could have in common, a process has too.
func TestP2C06(t *testing.T) { inBubble(t, testP2C06) }

func testP2C06(t *testing.T) {
	const servers, groups, clients = 20, 4, 100
	const config = `{"inference":{"strategy":"p2c"},"health":{"sources":[]}}` // thousands of streams would tell nothing here
	f := rig.New(t, servers)
	f.Far(10 * time.Millisecond)
	rounds := [2]rig.Results{}
	for range groups {
		made := make([]*rig.Client, clients)
		first := rig.Closed(clients, clients, func(i int) rig.Result {
			made[i] = f.Client(rig.Setup{Config: config})
			return made[i].Send("m", rig.Patience)
		})
		rounds[0] = append(rounds[0], first...)
		for _, c := range made {
			c.Ready(servers)
		}
		f.Backends[0].Stop()
		for _, c := range made {
			rig.Eventually(t, func() bool { return c.Endpoint("b0:1").Status != "ready" }, rig.Patience, "the loss of b0 noticed")
		}
		f.Backends[0].Start()
		for _, c := range made {
			c.Ready(servers)
		}
		rounds[1] = append(rounds[1], rig.Closed(clients, clients, func(i int) rig.Result { return made[i].Send("m", rig.Patience) })...)
		for _, c := range made {
			require.NoError(t, c.Close())
		}
	}
	for i, rs := range rounds {
		require.Empty(t, rs.Failed(), "%v", rs)
		by := rs.By()
		t.Logf("round %d: %v", i, by)
		for _, b := range f.Backends {
			assert.True(t, 3 <= by[b.Name] && by[b.Name] <= 45, "round %d, %s: %d calls, mean 20", i, b.Name, by[b.Name])
		}
	}
}

// Duplicate addresses must neither crash nor skew (grpc/grpc-go#2580). They are one endpoint: an address that two endpoints list belongs
// to the first, and an endpoint that has none left is left out. Newcomers do not start slowly here: shares are judged at once.
func TestP2C07(t *testing.T) { byLoad(t, testP2C07) }

func testP2C07(t *testing.T, p placing) {
	f := p.fleet(t, 3)
	for _, b := range f.Backends {
		b.Takes(time.Millisecond)
	}
	at := func(names ...string) []gresolver.Endpoint {
		var eps []gresolver.Endpoint
		for _, n := range names {
			eps = append(eps, rig.At(n+":1"))
		}
		return eps
	}
	c := f.Client(rig.Setup{Config: p.config(`,"slowStart":{"window":"0s"}`), Endpoints: []gresolver.Endpoint{}})
	c.Connect()
	third := map[string]float64{"b0": 1. / 3, "b1": 1. / 3, "b2": 1. / 3}
	for _, push := range []struct {
		what      string
		endpoints []gresolver.Endpoint
		shares    map[string]float64
	}{
		{"an endpoint twice", at("b0", "b1", "b1", "b2"), third},
		{"two endpoints that share an address", []gresolver.Endpoint{rig.At("b0:1", "b1:1"), rig.At("b1:1", "b2:1")},
			map[string]float64{"b0": .5, "b2": .5}},
		{"one endpoint three times", at("b0", "b0", "b0"), map[string]float64{"b0": 1}},
		{"all of them once", at("b0", "b1", "b2"), third},
	} {
		c.Resolve(push.endpoints...)
		p.ready(c, len(push.shares))
		rs := rig.Closed(4, 4000, func(int) rig.Result { return c.Send("m", limit) })
		require.Empty(t, rs.Failed(), "%s: %v", push.what, rs)
		for _, b := range f.Backends {
			assert.InDelta(t, push.shares[b.Name], rs.Share(b.Name), .1, "%s: %s", push.what, b.Name)
			rig.Eventually(t, func() bool { return b.Open() <= 1 }, rig.Patience, "at most one connection to %s", b.Name)
		}
	}
}

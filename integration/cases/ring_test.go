package cases

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"
	gresolver "google.golang.org/grpc/resolver"

	"github.com/mlbalancer/mlbalancer/integration/rig"
	"github.com/mlbalancer/mlbalancer/resolver"
)

// byRing is the config that places inference by the ring. Newcomers get what is theirs at once, so that each call says where its model is.
const byRing = `{"inference":{"strategy":"ring"},"slowStart":{"window":"0s"}}`

// limit is the deadline of calls that no case gives another.
const limit = 10 * time.Second

// addresses returns an endpoint for each of n servers that need not exist.
func addresses(n int) []gresolver.Endpoint {
	var eps []gresolver.Endpoint
	for i := range n {
		eps = append(eps, rig.At(fmt.Sprintf("b%d:1", i)))
	}
	return eps
}

// without returns the endpoints but the one at an index.
func without(eps []gresolver.Endpoint, i int) []gresolver.Endpoint {
	return append(append([]gresolver.Endpoint{}, eps[:i]...), eps[i+1:]...)
}

func shuffled(eps []gresolver.Endpoint) []gresolver.Endpoint {
	eps = append([]gresolver.Endpoint{}, eps...)
	rand.Shuffle(len(eps), func(i, j int) { eps[i], eps[j] = eps[j], eps[i] })
	return eps
}

// served maps the first n models by calls over the network: the address of the server that answered each.
func served(t *testing.T, c *rig.Client, n int) []string {
	t.Helper()
	rs := rig.Closed(8, n, func(i int) rig.Result { return c.Send(rig.Model(i), limit) })
	require.Empty(t, rs.Failed(), "%v", rs)
	to := make([]string, n)
	for i, r := range rs {
		to[i] = r.Backend + ":1"
	}
	return to
}

// Keys must not move between endpoints that did not change (grpc/grpc-go#6066).
func TestRING01(t *testing.T) {
	t.Parallel()
	const config = `{"request":{"modelHeaders":["x-model-id"]},"inference":{"strategy":"ring"},"ring":{"virtualNodes":500},"slowStart":{"window":"0s"}}`
	t.Run("calls go where the picker says", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			const sample, gone = 400, 42
			f := rig.New(t, 100)
			eps := f.Endpoints()
			ring := rig.ModelAware(t, config, eps...)
			c := f.Client(rig.Setup{Config: config})
			for _, eps := range [][]gresolver.Endpoint{eps, without(eps, gone), eps} {
				ring.Update(config, eps...)
				c.Resolve(eps...)
				require.Equal(t, ring.Map(rig.Models(sample)), served(t, c, sample))
			}
		})
	})
	eps := addresses(100)
	ids := rig.Models(100_000)
	ring := rig.ModelAware(t, config, eps...)
	first := ring.Map(ids)
	for range 10 {
		gone := rand.IntN(len(eps))
		addr := eps[gone].Addresses[0].Addr
		ring.Update(config, without(eps, gone)...)
		second := ring.Map(ids)
		moved := 0
		for i := range ids {
			if first[i] == addr {
				moved++
			}
			if (first[i] == addr) == (first[i] == second[i]) {
				t.Fatalf("%s goes from %s to %s when %s is removed", rig.Model(i), first[i], second[i], addr)
			}
		}
		assert.LessOrEqual(t, moved, 1300, "of %s", addr)
		ring.Update(config, eps...)
		require.Equal(t, first, ring.Map(ids), "with %s back", addr)
	}
}

// The mapping must not depend on the order in which endpoints are delivered (envoyproxy/envoy#20703).
func TestRING02(t *testing.T) {
	t.Parallel()
	const config, sample = byRing, 100
	f := rig.New(t, 30)
	ids := rig.Models(10_000)
	var want []string
	for i := range 20 {
		eps := shuffled(f.Endpoints())
		ring := rig.NewChannel(t, "model_aware")
		c := f.Client(rig.Setup{Config: config, Endpoints: []gresolver.Endpoint{}})
		c.Connect()
		if i%2 == 1 {
			for _, n := range []int{10, 20} {
				ring.Update(config, eps[:n]...)
				c.Resolve(eps[:n]...)
			}
		}
		ring.Update(config, eps...)
		c.Resolve(eps...)
		got := ring.Map(ids)
		if want == nil {
			want = got
		}
		require.Equal(t, want, got, "delivered as %v", eps)
		c.Ready(30)
		require.Equal(t, want[:sample], served(t, c, sample))
	}
}

// Ring parameters must be honoured in later configs too (grpc/grpc-go#5460).
func TestRING04(t *testing.T) { inBubble(t, testRING04) }

func testRING04(t *testing.T) {
	const before, after = `{"inference":{"strategy":"ring"},"ring":{"virtualNodes":1}}`, `{"inference":{"strategy":"ring"},"ring":{"virtualNodes":500}}`
	const n, sample = 20_000, 500
	ids := rig.Models(n)
	ring := rig.ModelAware(t, before, addresses(10)...)
	spread := func(to []string) float64 {
		most := 0
		for _, k := range rig.Count(to) {
			most = max(most, k)
		}
		return float64(most) / (n / 10)
	}
	uneven := ring.Map(ids)
	require.Greater(t, spread(uneven), 1.8)

	f := rig.New(t, 10)
	for _, b := range f.Backends {
		b.Takes(time.Millisecond)
	}
	c := f.Client(rig.Setup{Endpoints: []gresolver.Endpoint{}})
	c.Connect()
	c.ResolveConfig(before, f.Endpoints()...)
	c.Ready(10)
	require.Equal(t, uneven[:sample], served(t, c, sample))

	calling := inBackground(t, 4, func(i int) rig.Result { return c.Send(rig.Model(i), limit) })
	pause(t.Context(), 100*time.Millisecond)
	require.NoError(t, c.ResolveConfig(after, f.Endpoints()...).Err)
	changed := time.Now()
	ring.Update(after, addresses(10)...)
	even := ring.Map(ids)
	assert.LessOrEqual(t, spread(even), 1.25)
	require.Equal(t, even[:sample], served(t, c, sample))
	assert.Less(t, time.Since(changed), time.Second)
	rs := calling.stop()
	assert.Empty(t, rs.Failed(), "%v", rs)
	assert.Equal(t, 10, ring.Conns())
	for _, b := range f.Backends {
		assert.Equal(t, 1, b.Accepted(), "connections to %s", b.Name)
	}
}

// Calls that name no model must not all land on one backend (grpc/grpc-go#7990). They are spread by load, as the update strategy does.
func TestRING05(t *testing.T) { inBubble(t, testRING05) }

func testRING05(t *testing.T) {
	f := rig.New(t, 8)
	for _, b := range f.Backends {
		b.Takes(time.Millisecond)
	}
	c := f.Client(rig.Setup{Config: byRing})
	c.Ready(8)
	for _, header := range []string{"absent", "empty"} {
		rs := rig.Closed(4, 8000, func(int) rig.Result {
			if header == "empty" {
				return rig.Timed(limit, func(ctx context.Context) (string, error) {
					return c.Method(metadata.AppendToOutgoingContext(ctx, rig.ModelHeader, ""), rig.Infer)
				})
			}
			return c.Send("", limit)
		})
		require.Empty(t, rs.Failed(), "%v", rs)
		for backend, n := range rs.By() {
			assert.LessOrEqual(t, n, 1400, "%s, header %s", backend, header)
		}
	}
}

// An update of weights alone must not tear down connections (grpc/grpc-go#5420).
func TestRING06(t *testing.T) { inBubble(t, testRING06) }

func testRING06(t *testing.T) {
	f := rig.New(t, 20)
	for _, b := range f.Backends {
		b.Handle(slowOn(rig.Plain, 500*time.Millisecond))
	}
	c := f.Client(rig.Setup{Config: byRing})
	c.Ready(20)
	slow := inBackground(t, 20, func(int) rig.Result { return c.SendMethod(rig.Plain, limit) })
	rig.For(5*time.Second, 100*time.Millisecond, func(i int) {
		var eps []gresolver.Endpoint
		for j, ep := range f.Endpoints() {
			eps = append(eps, resolver.WithWeight(ep, float64(1+(i+j)%3)))
		}
		c.Resolve(eps...)
	})
	eps := f.Endpoints()
	eps[0] = resolver.WithWeight(eps[0], 5)
	c.Resolve(eps...)
	weighted := time.Now()
	const n = 1000
	heavy := rig.Count(served(t, c, n))[f.Backends[0].Addr()]
	assert.Less(t, time.Since(weighted), time.Second)
	rs := slow.stop()
	assert.Empty(t, rs.Failed(), "%v", rs)
	for _, b := range f.Backends {
		assert.Equal(t, 1, b.Accepted(), "connections to %s", b.Name)
	}
	assert.InDelta(t, n*5/24, heavy, 90, "models on the endpoint of weight 5; without weights it has 50")
	assert.InDelta(t, 5./24, c.Endpoint(f.Backends[0].Addr()).RingShare, .04)
}

// A new member that is healthy must get its share at once (envoyproxy/envoy#45212), where it is not to start slowly.
func TestRING08(t *testing.T) {
	t.Parallel()
	const sections = `{"inference":{"strategy":"ring"},"slowStart":{"window":"0s"}%s}`
	plain := checked(fmt.Sprintf(sections, ""))
	for name, add := range map[string]func(f *rig.Fleet, c *rig.Client){
		"add": func(f *rig.Fleet, c *rig.Client) { c.Resolve(f.Endpoints()...) },
		"add and health up at once": func(f *rig.Fleet, c *rig.Client) {
			f.Backends[1].Serving(false)
			up := make(chan struct{})
			go func() { defer close(up); f.Backends[1].Serving(true) }()
			c.Resolve(f.Endpoints()...)
			<-up
		},
		"two updates": func(f *rig.Fleet, c *rig.Client) {
			c.Resolve(f.Endpoints()[0])
			c.Resolve(f.Endpoints()...)
		},
		"update during a rebuild": func(f *rig.Fleet, c *rig.Client) {
			c.ResolveConfig(checked(fmt.Sprintf(sections, `,"ring":{"virtualNodes":100000}`)), f.Endpoints()[0])
			c.ResolveConfig(plain, f.Endpoints()[0])
			c.Resolve(f.Endpoints()...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				f := rig.New(t, 2)
				for _, b := range f.Backends {
					b.Takes(time.Millisecond)
				}
				c := f.Client(rig.Setup{Config: plain, Endpoints: f.Endpoints()[:1]})
				c.Ready(1)
				traffic := inBackground(t, 2, func(i int) rig.Result { return c.Send(rig.Model(i%1000), limit) })
				pause(t.Context(), 100*time.Millisecond)
				added := time.Now()
				add(f, c)
				share := float64(rig.Count(served(t, c, 1000))["b1:1"]) / 1000
				assert.True(t, .35 <= share && share <= .65, "share of the second backend: %v", share)
				assert.Less(t, time.Since(added), time.Second)
				rs := traffic.stop()
				assert.Empty(t, rs.Failed(), "%v", rs)
			})
		})
	}
}

// Endpoints that keep their name keep their models when their address changes (cloudwego/kitex#918). Without names an endpoint is its
// addresses, and its models move.
func TestRING09(t *testing.T) { inBubble(t, testRING09) }

func testRING09(t *testing.T) {
	const config, sample = byRing, 200
	ids := rig.Models(10_000)
	f := rig.New(t, 10)
	// An address is "host:generation"; all generations of a host are one instance.
	endpoints := func(generation []int, named bool) []gresolver.Endpoint {
		var eps []gresolver.Endpoint
		for i, g := range generation {
			ep := rig.At(f.Backends[i].AddrN(g))
			if named {
				ep = resolver.WithName(ep, fmt.Sprintf("pod-%d", i))
			}
			eps = append(eps, ep)
		}
		return eps
	}
	hosts := func(addrs []string) []string {
		names := make([]string, len(addrs))
		for i, a := range addrs {
			names[i], _, _ = strings.Cut(a, ":")
		}
		return names
	}
	generation := []int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}
	ring := rig.ModelAware(t, config, endpoints(generation, true)...)
	first := hosts(ring.Map(ids))
	c := f.Client(rig.Setup{Config: config, Endpoints: endpoints(generation, true)})
	require.Equal(t, first[:sample], hosts(served(t, c, sample)))
	for i := range generation {
		generation[i] = 2
		ring.Update(config, endpoints(generation, true)...)
		require.Equal(t, first, hosts(ring.Map(ids)), "instance %d has moved", i)
	}
	c.Resolve(endpoints(generation, true)...)
	require.Equal(t, first[:sample], hosts(served(t, c, sample)), "while the new addresses connect")
	for i := range generation {
		generation[i] = 3
	}
	ring.Update(config, endpoints(generation, true)...)
	require.Equal(t, first, hosts(ring.Map(ids)))

	unnamed := rig.ModelAware(t, config, endpoints(generation, false)...)
	before := hosts(unnamed.Map(ids))
	generation[0] = 4
	unnamed.Update(config, endpoints(generation, false)...)
	require.NotEqual(t, before, hosts(unnamed.Map(ids)), "another address is another endpoint")
}

// Shares of keys follow the weights (envoyproxy/envoy#6035).
func TestRING11(t *testing.T) {
	t.Parallel()
	const config = `{"inference":{"strategy":"ring"},"ring":{"virtualNodes":1000}}`
	ids := rig.Models(100_000)
	weigh := func(weights ...float64) map[string]int {
		eps := addresses(len(weights))
		for i, w := range weights {
			eps[i] = resolver.WithWeight(eps[i], w)
		}
		return rig.Count(rig.ModelAware(t, config, eps...).Map(ids))
	}
	n := weigh(1, 2, 3, 4)
	for i := range 4 {
		assert.InEpsilon(t, (i+1)*len(ids)/10, n[fmt.Sprintf("b%d:1", i)], .12)
	}
	n = weigh(1, 1, 1000)
	for i := range 3 {
		assert.Positive(t, n[fmt.Sprintf("b%d:1", i)], "b%d", i)
	}
	n = weigh(1, 0, 1, 1e-9)
	assert.Zero(t, n["b1:1"], "weight 0")
	assert.Positive(t, n["b0:1"])
	assert.Len(t, n, 3, "the smallest weight owns a point")

	f := rig.New(t, 2)
	eps := f.Endpoints()
	eps[1] = resolver.WithWeight(eps[1], 0)
	c := f.Client(rig.Setup{Endpoints: eps})
	c.Ready(2)
	rs := rig.Closed(4, 500, func(i int) rig.Result { return c.Send(rig.Model(i), limit) })
	assert.Empty(t, rs.Failed(), "%v", rs)
	assert.Zero(t, f.Backends[1].Started(), "calls on the endpoint of weight 0")
}

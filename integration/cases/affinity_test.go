package cases

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	gresolver "google.golang.org/grpc/resolver"

	"github.com/mlbalancer/mlbalancer/integration/rig"
	"github.com/mlbalancer/mlbalancer/resolver"
)

// What P2C and RING cases ask of placement by load and of placement by key, asked of affinity where servers say what they hold.

// onDemand is how servers here keep models, if they load what they are asked for.
var onDemand = rig.Keeping{Slots: 8, Load: 500 * time.Millisecond, Workers: 4}

// holders returns the servers that hold a model.
func holders(ms []*rig.Memory, model string) (at []int) {
	for i, m := range ms {
		if m.Holds(model) {
			at = append(at, i)
		}
	}
	return at
}

// loads returns how many loads calls have led to on all servers.
func loads(ms []*rig.Memory) (n int) {
	for _, m := range ms {
		n += m.Loads()
	}
	return n
}

// keeps makes all servers keep models, none at first, and take some time for a call.
func keeps(f *rig.Fleet, k rig.Keeping, takes time.Duration) (ms []*rig.Memory) {
	for _, b := range f.Backends {
		b.Takes(takes)
		ms = append(ms, b.Keeps(k))
	}
	return ms
}

// spread loads n models, the i-th on the i-th server in turn.
func spread(ms []*rig.Memory, n int) {
	for i := range n {
		ms[i%len(ms)].Has(rig.Model(i))
	}
}

// picked returns how many of a channel's calls were placed for each reason.
func picked(c *rig.Client) map[string]uint64 {
	by := map[string]uint64{}
	for _, e := range c.Snapshot().Endpoints {
		for reason, n := range e.Picks {
			by[reason] += n
		}
	}
	return by
}

// Clients that hear the same of the same servers must not choose the same one (grpc/grpc-go#8104).
func TestP2C06Affinity(t *testing.T) { inBubble(t, testP2C06Affinity) }

func testP2C06Affinity(t *testing.T) {
	const servers, clients, n = 8, 8, 200
	f := rig.New(t, servers)
	for _, m := range keeps(f, rig.Keeping{Workers: 4}, 20*time.Millisecond) {
		m.Has("m")
	}
	var cs []*rig.Client
	for range clients {
		cs = append(cs, f.Client(rig.Setup{}))
	}
	for _, c := range cs {
		c.Informed(servers)
	}
	first := rig.Closed(clients, clients, func(i int) rig.Result { return cs[i].Send("m", limit) })
	require.Empty(t, first.Failed(), "%v", first)
	assert.GreaterOrEqual(t, len(first.By()), 3, "first calls: %v", first.By())
	rs := rig.Closed(2*clients, clients*n, func(i int) rig.Result { return cs[i%clients].Send("m", limit) })
	require.Empty(t, rs.Failed(), "%v", rs)
	t.Logf("%v", rs.By())
	for _, b := range f.Backends {
		assert.InDelta(t, 1, share(rs, b.Name, servers), .3, b.Name)
	}
	assert.Less(t, percentile(rs, .95), 30*time.Millisecond, "of 20 ms of work: hardly anybody waits while others are idle")
	for _, c := range cs {
		assert.Equal(t, []string{"warm"}, keys(picked(c)))
	}
}

// keys returns a map's keys, in no order.
func keys(m map[string]uint64) (ks []string) {
	for k := range m {
		ks = append(ks, k)
	}
	return ks
}

// An endpoint that joins must not move models that are where they were (grpc/grpc-go#6066 for a ring), and one that leaves takes its own with it
// and no others.
func TestRING01Affinity(t *testing.T) { inBubble(t, testRING01Affinity) }

func testRING01Affinity(t *testing.T) {
	const servers, models = 5, 20
	f := rig.New(t, servers)
	ms := keeps(f, onDemand, 5*time.Millisecond)
	spread(ms[:4], models)
	eps := f.Endpoints()
	c := f.Client(rig.Setup{Endpoints: eps[:4]})
	c.Informed(4)
	pass := func(what string, moved func(i int) bool) {
		t.Helper()
		rs := rig.Closed(4, 10*models, func(i int) rig.Result { return c.Send(rig.Model(i%models), limit) })
		require.Empty(t, rs.Failed(), "%s: %v", what, rs)
		for _, r := range rs {
			if i := r.Index % models; !moved(i) {
				require.Equal(t, f.Backends[i%4].Name, r.Backend, "%s: %s", what, rig.Model(i))
			}
		}
	}
	nobody := func(int) bool { return false }
	pass("at first", nobody)
	c.Resolve(eps...)
	c.Informed(servers)
	pass("with one more", nobody)
	require.Zero(t, loads(ms))
	c.Resolve(without(eps, 1)...)
	c.Informed(servers - 1)
	own := func(i int) bool { return i%4 == 1 }
	pass("with one less", own)
	assert.Equal(t, models/4, loads(ms), "each of its models is loaded once")
	pass("after that", own)
	assert.Equal(t, models/4, loads(ms))
	c.Resolve(eps...)
	c.Informed(servers)
	pass("with all of them", own)
	assert.Equal(t, models/4, loads(ms), "what it still holds is used")
}

// Clients agree on where models are, whoever started when and was told of endpoints in which order (envoyproxy/envoy#20703 for a ring): they hear it.
func TestRING02Affinity(t *testing.T) { inBubble(t, testRING02Affinity) }

func testRING02Affinity(t *testing.T) {
	const servers, models, clients = 6, 24, 3
	f := rig.New(t, servers)
	ms := keeps(f, onDemand, 5*time.Millisecond)
	start := func() *rig.Client {
		c := f.Client(rig.Setup{Endpoints: shuffled(f.Endpoints())})
		c.Informed(servers)
		return c
	}
	var cs []*rig.Client
	for range clients {
		cs = append(cs, start())
	}
	call := func(c *rig.Client, what string) {
		t.Helper()
		rs := rig.Closed(2, 4*models, func(i int) rig.Result { return c.Send(rig.Model(i%models), limit) })
		require.Empty(t, rs.Failed(), "%s: %v", what, rs)
		for _, r := range rs {
			require.Contains(t, holders(ms, rig.Model(r.Index%models)), at(f, r.Backend), "%s: %s", what, rig.Model(r.Index%models))
		}
	}
	call(cs[0], "the first")
	require.Equal(t, models, loads(ms), "each model is loaded once")
	for _, c := range cs[1:] {
		call(c, "another")
	}
	require.NoError(t, cs[0].Close())
	call(start(), "one that was restarted")
	assert.Equal(t, models, loads(ms), "nobody loads what is loaded")
}

// at returns the index of a server.
func at(f *rig.Fleet, name string) int {
	for i, b := range f.Backends {
		if b.Name == name {
			return i
		}
	}
	return -1
}

// Weights of endpoints are shares of the ring, which says where models are loaded; a model is called where it is, but for weight 0, which gets nothing
// (envoyproxy/envoy#6035).
func TestRING11Affinity(t *testing.T) { inBubble(t, testRING11Affinity) }

func testRING11Affinity(t *testing.T) {
	const models = 120
	f := rig.New(t, 4)
	ms := keeps(f, rig.Keeping{Load: 20 * time.Millisecond, Workers: 4}, time.Millisecond)
	var eps []gresolver.Endpoint
	for i, w := range []float64{1, 0, 1, 6} {
		eps = append(eps, resolver.WithWeight(rig.At(f.Backends[i].Addr()), w))
	}
	ms[1].Has("m")
	ms[0].Has("m")
	c := f.Client(rig.Setup{Endpoints: eps})
	c.Informed(4)
	rs := rig.Closed(1, models, func(i int) rig.Result { return c.Send(rig.Model(i), limit) })
	require.Empty(t, rs.Failed(), "%v", rs)
	t.Logf("%v %v", rs.By(), picked(c))
	assert.Equal(t, models, loads(ms))
	for _, other := range []string{"b0", "b2"} { // a model goes further along the ring while its home has another to load
		assert.Greater(t, rs.Share("b3"), 1.4*rs.Share(other), "weight 6 against %s's 1", other)
	}
	rs = rig.Closed(4, 200, func(int) rig.Result { return c.Send("m", limit) })
	require.Empty(t, rs.Failed(), "%v", rs)
	assert.Zero(t, f.Backends[1].Started(), "calls on the endpoint of weight 0")
	for reason := range picked(c) {
		assert.Contains(t, []string{"warm", "cold"}, reason, fmt.Sprint(picked(c)))
	}
}

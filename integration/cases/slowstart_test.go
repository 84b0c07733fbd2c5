package cases

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	gresolver "google.golang.org/grpc/resolver"

	"github.com/mlbalancer/mlbalancer/integration/rig"
	"github.com/mlbalancer/mlbalancer/resolver"
)

// A newcomer must get some of its share at once, and all of it only in the end (envoyproxy/envoy#19437). There are three clients, so
// that some seconds' calls are enough to tell shares apart.
func TestP2C09(t *testing.T) {
	t.Parallel()
	const window = `"slowStart":{"window":"10s"}`
	t.Run("p2c", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			testNewcomer(t, `{"inference":{"strategy":"p2c"},`+window+`}`, 1, 1, 1, 1, 1)
		})
	})
	t.Run("weighted ring", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			testNewcomer(t, `{"inference":{"strategy":"ring"},`+window+`}`, 1, 2, 1, 2, 2)
		})
	})
}

// testNewcomer adds the last one of servers of some weights to the others.
func testNewcomer(t *testing.T, config string, weights ...float64) {
	const clients, rate, seconds, models = 3, 400, 14, 10_000
	f := rig.New(t, len(weights))
	var eps []gresolver.Endpoint
	all := 0.
	for i, w := range weights {
		f.Backends[i].Takes(time.Millisecond)
		eps = append(eps, resolver.WithWeight(rig.At(f.Backends[i].Addr()), w))
		all += w
	}
	warm, last := len(eps)-1, f.Backends[len(eps)-1]
	var loads []*background
	var cs []*rig.Client
	for n := range clients {
		c := f.Client(rig.Setup{Config: config, Endpoints: eps[:warm]})
		c.Ready(warm)
		cs = append(cs, c)
		loads = append(loads, atRate(t, rate, func(i int) rig.Result { return c.Send(rig.Model((i*37+n*models/clients)%models), limit) }))
	}
	pause(t.Context(), 2*time.Second)
	added := time.Now()
	for _, c := range cs {
		c.Resolve(eps...)
	}
	pause(t.Context(), seconds*time.Second)
	fair := cs[0].Endpoint(last.Addr()).RingShare
	if fair == 0 {
		fair = weights[warm] / all
	}
	assert.InDelta(t, weights[warm]/all, fair, .05)
	var rs rig.Results
	for _, l := range loads {
		rs = append(rs, l.stop()...)
	}
	require.Empty(t, rs.Failed(), "%v", rs)

	// of returns the newcomer's part of its fair share from one second to another, counted from 1.
	of := func(from, to int) float64 {
		at := func(s int) time.Time { return added.Add(time.Duration(s) * time.Second) }
		return rs.Between(at(from-1), at(to)).Share(last.Name) / fair
	}
	var each []float64
	for s := 1; s <= seconds; s++ {
		each = append(each, of(s, s))
	}
	t.Logf("%.2f", each)
	assert.True(t, 0 < each[0] && each[0] <= .3, "second 1: %v", each[0])
	assert.True(t, .25 <= each[4] && each[4] <= .8, "second 5: %v", each[4])
	final := of(11, seconds)
	assert.True(t, .85 <= final && final <= 1.15, "from second 11 on: %v", final)
	for s := 1; s < 11; s += 2 {
		assert.GreaterOrEqual(t, of(s+2, s+3), of(s, s+1)-.1, "from second %d on against %d", s+2, s)
	}
}

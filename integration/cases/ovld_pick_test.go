package cases

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	gresolver "google.golang.org/grpc/resolver"

	"github.com/mlbalancer/mlbalancer/integration/rig"
)

// Choosing must not become slow (kubernetes-sigs/gateway-api-inference-extension#581). The case's bounds are added to some times what round_robin takes on
// the same servers in the same run, turn by turn, and hold in most rounds: on a machine that others use as well, with the race detector, the tail is
// the machine's, and one that stops for a moment stops all workers at once. Endpoints come and go, and now and then comes another config, after so many
// calls and not so much time, of which a busy machine needs more. There are a fiftieth of the case's thousand servers, for the same reason; that picks
// take as long for a thousand, and go on while a ring is rebuilt, is tested where there is no network. A histogram joins with metrics.
func TestOVLD09(t *testing.T) {
	const servers, workers, rounds, calls, models = 20, 16, 9, 400, 10
	f := rig.New(t, servers)
	var held []string
	for i := range models {
		held = append(held, rig.Model(i))
	}
	for _, b := range f.Backends {
		b.Keeps(rig.Keeping{Workers: 4, Reports: 5}, held...)
	}
	theirs := chooser{f: f, model: func(int) string { return "" }, config: func(int) string { return `{"loadBalancingConfig":[{"round_robin":{}}]}` }}
	ours := chooser{f: f, model: func(i int) string { return rig.Model(i % models) }, config: func(i int) string {
		return rig.ServiceConfig(fmt.Sprintf(`{"affinity":{"maxReplicas":%d},"breaker":{"minRequests":%d},"slowStart":{"window":"0s"}}`, 10+i%2, 10+i%2))
	}}
	for _, c := range []*chooser{&theirs, &ours} {
		c.Client = f.Client(rig.Setup{Endpoints: []gresolver.Endpoint{}})
		c.Connect()
		c.ResolveConfig(c.config(0), f.Endpoints()...)
	}
	ours.Informed(servers)
	rig.Eventually(t, func() bool {
		return len(rig.Closed(4, 2*servers, func(int) rig.Result { return theirs.Send("", limit) }).By()) == servers
	}, rig.Patience, "all are called")

	bounds := []struct {
		p     float64
		times time.Duration
		extra time.Duration
	}{{.5, 3, 50 * time.Microsecond}, {.99, 10, time.Millisecond}}
	within := make([]int, len(bounds)) // in how many rounds
	for range rounds {
		rr, own := theirs.take(workers, calls), ours.take(workers, calls)
		require.Empty(t, own.Failed(), "%v", own)
		for i, bound := range bounds {
			rr, own := percentile(rr, bound.p), percentile(own, bound.p)
			t.Logf("p%v: %v by round_robin, %v", 100*bound.p, rr, own)
			if own <= bound.times*rr+bound.extra {
				within[i]++
			}
		}
	}
	for i, bound := range bounds {
		assert.Greater(t, within[i], rounds/2, "rounds with a p%v within bounds", 100*bound.p)
	}
	by := picked(ours.Client)
	t.Logf("%v", by)
	sum := uint64(0)
	for _, n := range by { // of endpoints that have not left since
		sum += n
	}
	assert.Greater(t, by["warm"], sum*9/10, "affinity is at work: %v", by)
}

// chooser is a channel whose policy is to choose while all changes.
type chooser struct {
	*rig.Client
	f      *rig.Fleet
	model  func(i int) string // of a call; round_robin's name none, which any server answers
	config func(i int) string
	turn   int
}

// take has workers send calls, and changes endpoints and config meanwhile.
func (c *chooser) take(workers, calls int) rig.Results {
	const callsPerChange, changesPerConfig = 100, 10
	due := make(chan struct{}, calls/callsPerChange+1)
	var changing sync.WaitGroup
	changing.Go(func() {
		eps := c.f.Endpoints()
		for range due {
			c.turn++
			c.ResolveConfig(c.config(c.turn/changesPerConfig), without(eps, c.turn%len(eps))...)
		}
	})
	rs := rig.Closed(workers, calls, func(i int) rig.Result {
		if i%callsPerChange == 0 {
			due <- struct{}{}
		}
		return c.Send(c.model(i), limit)
	})
	close(due)
	changing.Wait()
	return rs
}

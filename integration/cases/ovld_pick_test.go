package cases

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	gresolver "google.golang.org/grpc/resolver"

	"github.com/mlbalancer/mlbalancer/integration/rig"
)

// Choosing must not become slow (kubernetes-sigs/gateway-api-inference-extension#581). The case's bounds are added to some times what round_robin takes on
// the same servers in the same run, turn by turn: on a machine that others use as well, with the race detector, the tail is the machine's. Endpoints
// come and go every 100 ms, and each second brings another config. There are a fiftieth of the case's thousand servers, for the same reason; that picks
// take as long for a thousand, and go on while a ring is rebuilt, is tested where there is no network. A histogram joins with metrics.
func TestOVLD09(t *testing.T) {
	const servers, workers, rounds, calls, models = 20, 16, 3, 400, 10
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

	var took [2]rig.Results
	for range rounds {
		for i, c := range []*chooser{&theirs, &ours} {
			churn := c.churn(t)
			took[i] = append(took[i], rig.Closed(workers, calls, func(i int) rig.Result { return c.Send(c.model(i), limit) })...)
			close(churn)
		}
	}
	require.Empty(t, took[1].Failed(), "%v", took[1])
	by := picked(ours.Client)
	t.Logf("%v", by)
	sum := uint64(0)
	for _, n := range by { // of endpoints that have not left since
		sum += n
	}
	assert.Greater(t, by["warm"], sum*9/10, "affinity is at work: %v", by)
	for _, bound := range []struct {
		p     float64
		times time.Duration
		extra time.Duration
	}{{.5, 3, 50 * time.Microsecond}, {.99, 10, time.Millisecond}} {
		rr, own := percentile(took[0], bound.p), percentile(took[1], bound.p)
		t.Logf("p%v: %v by round_robin, %v", 100*bound.p, rr, own)
		assert.LessOrEqual(t, own, bound.times*rr+bound.extra, "p%v", 100*bound.p)
	}
}

// chooser is a channel whose policy is to choose while all changes.
type chooser struct {
	*rig.Client
	f      *rig.Fleet
	model  func(i int) string // of a call; round_robin's name none, which any server answers
	config func(i int) string
	turn   int
}

// churn changes endpoints and config until the channel that it returns is closed.
func (c *chooser) churn(t *testing.T) chan struct{} {
	stop, done := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { <-done })
	go func() {
		defer close(done)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		eps := c.f.Endpoints()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			c.turn++
			c.ResolveConfig(c.config(c.turn/10), without(eps, c.turn%len(eps))...)
		}
	}()
	return stop
}

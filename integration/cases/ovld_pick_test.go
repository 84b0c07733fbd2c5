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

// Choosing must not become slow (kubernetes-sigs/gateway-api-inference-extension#581): not by more than the case's bounds and what round_robin takes
// itself, on the same servers in the same run, turn by turn. Endpoints come and go every 100 ms, and each second brings another config. A fiftieth of the
// case's thousand servers is what one process can be beside the race detector; that picks take as long for a thousand, and go on while a ring is
// rebuilt, is tested where there is no network.
func TestOVLD09(t *testing.T) {
	const servers, workers, rounds, calls, models = 20, 16, 3, 400, 10
	f := rig.New(t, servers)
	for i, b := range f.Backends {
		b.Keeps(rig.Keeping{Load: time.Second, Workers: 4, Reports: 5}, rig.Model(i%models), rig.Model((i+1)%models))
	}
	theirs := chooser{f: f, model: func(int) string { return "" }, config: func(int) string { return `{"loadBalancingConfig":[{"round_robin":{}}]}` }}
	ours := chooser{f: f, model: func(i int) string { return rig.Model(i % models) }, config: func(i int) string {
		return rig.ServiceConfig(fmt.Sprintf(`{"affinity":{"maxReplicas":%d},"breaker":{"minRequests":%d}}`, 10+i%2, 10+i%2))
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
	assert.Greater(t, by["warm"], uint64(rounds*calls/2), "affinity is at work: %v", by)
	for _, bound := range []struct {
		p     float64
		extra time.Duration
	}{{.5, 50 * time.Microsecond}, {.99, time.Millisecond}, {1, 5*time.Millisecond + f.Pause()}} {
		rr, own := percentile(took[0], bound.p), percentile(took[1], bound.p)
		t.Logf("p%v: %v by round_robin, %v", 100*bound.p, rr, own)
		assert.LessOrEqual(t, own, 2*rr+bound.extra, "p%v", 100*bound.p)
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

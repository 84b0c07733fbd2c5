package cases

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	gresolver "google.golang.org/grpc/resolver"

	"github.com/mlbalancer/mlbalancer/integration/rig"
)

// A state change of a connection that is removed already must not panic the rebuild (grpc/grpc-go#6453). The chaos lasts a quarter
// of the case's minute.
func TestLIFE05(t *testing.T) {
	t.Parallel()
	const workers, models = 200, 1000
	c := newChaos(t, 30)
	rig.Watchdog(t, 3*time.Minute)
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	var chaos sync.WaitGroup
	chaos.Go(func() { every(ctx, 3*time.Millisecond, c.pushEndpoints) })
	chaos.Go(func() { every(ctx, 50*time.Millisecond, c.pushConfig) })
	chaos.Go(func() { every(ctx, 5*time.Millisecond, c.flapListener) })
	chaos.Go(func() { every(ctx, 5*time.Millisecond, c.flipHealth) })
	rs := rig.Until(ctx, workers, func(i int) rig.Result {
		r := c.client.Send(rig.Model(i%models), time.Second)
		if r.Err != nil {
			pause(ctx, 5*time.Millisecond) // or the workers would spin while nothing is ready
		}
		return r
	})
	chaos.Wait()
	t.Logf("%d calls: %v", len(rs), rs.Codes())
	require.Positive(t, rs.Codes()[codes.OK])

	want := c.calm()
	rig.Eventually(t, func() bool {
		ready := 0
		for _, e := range c.client.Snapshot().Endpoints {
			if e.Status == "ready" && e.Health.Server == "ready" {
				ready++
			}
		}
		return ready == len(want)
	}, 2*time.Second+c.fleet.Pause(), "the healthy set, %v, is in use", want)
	rs = rig.Closed(4, 3*models, func(i int) rig.Result { return c.client.Send(rig.Model(i), limit) })
	require.Empty(t, rs.Failed(), "%v", rs)
	var got []string
	for backend := range rs.By() {
		got = append(got, backend)
	}
	require.ElementsMatch(t, want, got)
}

// chaos is a fleet whose servers come and go, and a resolver that changes its mind.
type chaos struct {
	fleet  *rig.Fleet
	client *rig.Client

	servers     sync.Mutex
	up, serving []bool

	resolver sync.Mutex // it says one thing at a time
	pushed   []gresolver.Endpoint
	config   string
}

// configs are those that the resolver changes between; most switch client-side health checking on, and each asks for health in another way.
var configs = []string{
	checked(`{}`), checked(p2c), checked(`{"ring":{"virtualNodes":20,"replicas":3},"health":{"panicThreshold":0}}`),
	checked(`{"inference":{"strategy":"round_robin"},"health":{"sources":["standard","oip"],"interval":"0.05s"}}`),
	rig.ServiceConfig(`{"health":{"sources":["gpustats","standard"],"interval":"0.1s"}}`), checked(`{"health":{"sources":[]}}`),
}

func checked(section string) string {
	return `{"loadBalancingConfig":[{"model_aware":` + section + `}],"healthCheckConfig":{"serviceName":""}}`
}

func newChaos(t *testing.T, servers int) *chaos {
	f := rig.New(t, servers)
	c := &chaos{fleet: f, pushed: f.Endpoints(), config: configs[0]}
	for _, b := range f.Backends {
		b.Takes(100 * time.Millisecond)
		c.up, c.serving = append(c.up, true), append(c.serving, true)
	}
	soon := backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.6, MaxDelay: 200 * time.Millisecond}
	c.client = f.Client(rig.Setup{
		Config:  c.config,
		Options: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{Backoff: soon})},
	})
	c.client.Connect()
	return c
}

func (c *chaos) pushEndpoints() {
	c.resolver.Lock()
	defer c.resolver.Unlock()
	c.pushed = shuffled(c.fleet.Endpoints())[:1+rand.IntN(len(c.up))]
	c.client.ResolveConfig(c.config, c.pushed...)
}

func (c *chaos) pushConfig() {
	c.resolver.Lock()
	defer c.resolver.Unlock()
	c.config = configs[rand.IntN(len(configs))]
	c.client.ResolveConfig(c.config, c.pushed...)
}

func (c *chaos) flapListener() {
	c.servers.Lock()
	defer c.servers.Unlock()
	i := rand.IntN(len(c.up))
	if c.up[i] {
		c.fleet.Backends[i].Stop()
	} else {
		c.fleet.Backends[i].Start()
		c.serving[i] = true
	}
	c.up[i] = !c.up[i]
}

func (c *chaos) flipHealth() {
	c.servers.Lock()
	defer c.servers.Unlock()
	i := rand.IntN(len(c.up))
	if !c.up[i] {
		return
	}
	b := c.fleet.Backends[i]
	switch rand.IntN(3) {
	case 0:
		c.serving[i] = !c.serving[i]
		b.Serving(c.serving[i])
	case 1:
		states := []healthpb.HealthCheckResponse_ServingStatus{isServing, isNotServing, isUnknown}
		b.ServingStatus(rig.Model(rand.IntN(10)), states[rand.IntN(len(states))])
	case 2:
		b.Answers(rig.GPUStats, []rig.Answer{
			nil, rig.Hangs, rig.Says(nil, ready()), rig.Says(rig.Hangs, ready()), rig.Refuses(codes.Internal, "a bug"),
		}[rand.IntN(5)])
	}
}

// calm leaves the servers as they are, but for one that is made healthy so that there is one, has the resolver say a last word under
// which all endpoints get models and those that are not healthy none, and returns the names of the listed servers that are up and healthy.
func (c *chaos) calm() []string {
	first := c.fleet.Backends[0]
	first.Start()
	first.Serving(true)
	c.up[0], c.serving[0] = true, true
	c.config = configs[2]
	c.pushed = append(c.pushed, rig.At(first.Addr())) // it may be there already: duplicates are one endpoint
	c.client.ResolveConfig(c.config, c.pushed...)
	listed := map[string]bool{}
	for _, ep := range c.pushed {
		listed[ep.Addresses[0].Addr] = true
	}
	var healthy []string
	for i, b := range c.fleet.Backends {
		b.Handle(nil)
		for m := range 10 {
			b.ServingStatus(rig.Model(m), isServing)
		}
		if listed[b.Addr()] && c.up[i] && c.serving[i] {
			healthy = append(healthy, b.Name)
		}
	}
	return healthy
}

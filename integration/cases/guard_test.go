package cases

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/mlbalancer/mlbalancer"
	"github.com/mlbalancer/mlbalancer/balancer"
	"github.com/mlbalancer/mlbalancer/integration/rig"
)

// dialOptions are those of the module, for a config that is the policy's section of a service config.
func dialOptions(config string, opts ...mlbalancer.Option) []grpc.DialOption {
	return append(mlbalancer.DialOptions(opts...), grpc.WithDefaultServiceConfig(rig.ServiceConfig(config)))
}

// strategies are those that a case about breakers is tried with.
var strategies = []string{"ring", "p2c", "affinity"}

// eachStrategy runs a test with a config that holds a strategy and some sections more, in a bubble for each.
func eachStrategy(t *testing.T, sections string, test func(t *testing.T, config string)) {
	t.Parallel()
	for _, s := range strategies {
		t.Run(s, func(t *testing.T) {
			inBubble(t, func(t *testing.T) { test(t, fmt.Sprintf(`{"inference":{"strategy":%q},%s}`, s, sections)) })
		})
	}
}

// mix sends calls for a hundred models.
func mix(c *rig.Client) func(i int) rig.Result {
	return func(i int) rig.Result { return c.Send(rig.Model(i%100), limit) }
}

// homes returns models whose home is the i-th server of a fleet.
func homes(t *testing.T, f *rig.Fleet, i int) []string {
	t.Helper()
	var models []string
	for m, at := range rig.ModelAware(t, `{}`, f.Endpoints()...).Map(rig.Models(200)) {
		if at == f.Backends[i].Addr() {
			models = append(models, rig.Model(m))
		}
	}
	require.NotEmpty(t, models)
	return models
}

// state returns the state of an endpoint's breaker.
func state(c *rig.Client, b *rig.Backend) string { return c.Endpoint(b.Addr()).Breaker.State }

// becomes waits until the breaker of an endpoint is in a state, and returns when it changed.
func becomes(t *testing.T, c *rig.Client, b *rig.Backend, want string, within time.Duration) time.Time {
	t.Helper()
	rig.Eventually(t, func() bool { return state(c, b) == want }, within, "%s is %s", b.Name, want)
	var at time.Time
	for _, tr := range changes(c, b.Addr()) {
		if tr.To == want {
			at = tr.Time
		}
	}
	rig.Eventually(t, func() bool { // transitions are read out a moment later
		for _, tr := range changes(c, b.Addr()) {
			if tr.To == want {
				at = tr.Time
			}
		}
		return !at.IsZero()
	}, time.Second, "a transition to %s", want)
	return at
}

// changes returns the transitions of an endpoint's own breaker.
func changes(c *rig.Client, endpoint string) []balancer.Transition {
	var own []balancer.Transition
	for _, tr := range c.Snapshot().Transitions {
		if tr.Endpoint == endpoint && tr.Model == "" {
			own = append(own, tr)
		}
	}
	return own
}

// trip makes a server fail, sends it calls for models that are at home there until its breaker is open, and returns when it opened.
func trip(t *testing.T, c *rig.Client, b *rig.Backend, models []string) time.Time {
	t.Helper()
	b.Fails(codes.Unavailable, "out of order")
	for i := range 100 {
		c.Send(models[i%len(models)], limit)
		if state(c, b) == "open" {
			return becomes(t, c, b, "open", time.Second)
		}
	}
	require.Fail(t, "not open after 100 calls")
	return time.Time{}
}

// sequence is a handler that does one thing after the other, and then the last one for ever.
func sequence(steps ...rig.Handler) rig.Handler {
	var mu sync.Mutex
	next := 0
	return func(ctx context.Context, method string) error {
		mu.Lock()
		step := steps[min(next, len(steps)-1)]
		next++
		mu.Unlock()
		if step == nil {
			return nil
		}
		return step(ctx, method)
	}
}

// hang waits until nobody waits for the answer.
func hang(ctx context.Context, _ string) error { return rig.Wait(ctx, time.Hour) }

package integration

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer"
	"github.com/mlbalancer/mlbalancer/integration/rig"
	"github.com/mlbalancer/mlbalancer/picker"
)

// gRPC's own retries of the config go to endpoints that the call has not tried yet, and no further than there are any.
func TestRetriesGoElsewhere(t *testing.T) {
	for name, strategy := range map[string]string{"ring": "ring", "p2c": "p2c", "turns": "round_robin"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				const servers = 4
				f := rig.New(t, servers)
				var mu sync.Mutex
				var tried []string
				healthy := -1
				for i, b := range f.Backends {
					b.Handle(func(context.Context, string) error {
						mu.Lock()
						defer mu.Unlock()
						tried = append(tried, b.Addr())
						if i == healthy {
							return nil
						}
						return status.Errorf(codes.Unavailable, "%s is out of order", b.Name)
					})
				}
				c := f.Client(rig.Setup{
					Config: `{"loadBalancingConfig":[{"model_aware":{"inference":{"strategy":"` + strategy + `"},
						"breaker":{"maxEjectionPercent":0,"perModel":false}}}],"methodConfig":[{"name":[{}],"retryPolicy":{
						"maxAttempts":5,"initialBackoff":"0.01s","maxBackoff":"0.1s","backoffMultiplier":1.5,"retryableStatusCodes":["UNAVAILABLE"]}}]}`,
					Options: interceptors,
				})
				c.Ready(servers)
				for i := range 40 {
					healthy, tried = i%servers, nil
					r, d := decide(c, rig.Model(i))
					require.NoError(t, r.Err)
					require.Equal(t, len(tried), d.Attempt)
					require.Equal(t, tried[len(tried)-1], d.Endpoint)
					require.Equal(t, r.Backend+":1", d.Endpoint)
					require.Len(t, distinct(tried), len(tried), "each attempt elsewhere: %v", tried)
					if name == "ring" {
						order := ringOrder(t, rig.Model(i), f)
						require.Equal(t, order[:len(tried)], tried, "attempts follow the ring")
						require.Equal(t, []picker.Reason{picker.Home, picker.Replica, picker.Overflow, picker.Overflow}[d.Attempt-1], d.Reason)
					}
				}
				healthy, tried = -1, nil
				r, d := decide(c, "m")
				require.Equal(t, codes.Unavailable, status.Code(r.Err))
				require.ErrorContains(t, r.Err, "is out of order", "the last server's error")
				require.Equal(t, 5, d.Attempt)
				require.Len(t, distinct(tried[:servers]), servers)
				for _, e := range c.Snapshot().Endpoints {
					require.Zero(t, e.InFlight)
				}
			})
		})
	}
}

func distinct(values []string) map[string]int { return rig.Count(values) }

// ringOrder returns the endpoints in the order in which a model's ring meets them: its home, its home once that is gone, and so on.
func ringOrder(t *testing.T, model string, f *rig.Fleet) []string {
	t.Helper()
	eps := f.Endpoints()
	var order []string
	for len(eps) > 0 {
		at := home(t, `{}`, model, eps...)
		order = append(order, at)
		for i, ep := range eps {
			if ep.Addresses[0].Addr == at {
				eps = append(eps[:i], eps[i+1:]...)
				break
			}
		}
	}
	return order
}

func TestADecisionSaysWhereAndWhy(t *testing.T) {
	t.Parallel()
	f := rig.New(t, 3)
	c := f.Client(rig.Setup{Options: mlbalancer.DialOptions()})
	c.Ready(3)
	r, d := decide(c, "m")
	require.NoError(t, r.Err)
	require.Equal(t, picker.Decision{Endpoint: r.Backend + ":1", Model: "m", Reason: picker.Home, Attempt: 1}, d)

	d = picker.Decision{Endpoint: "stale", Attempt: 7}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.Call(ctx, "m", mlbalancer.WithDecision(&d))
	require.Equal(t, codes.Canceled, status.Code(err))
	require.Zero(t, d.Attempt, "a call that was never placed")

	f.Backends[0].Fails(codes.NotFound, "no such row")
	m := modelAt(t, "b0:1", f.Endpoints()...)
	r, d = decide(c, m)
	require.Equal(t, codes.NotFound, status.Code(r.Err))
	require.Equal(t, "b0:1", d.Endpoint, "where the error came from")

	require.NoError(t, c.Send("m", limit, mlbalancer.WithDecision(nil)).Err)
}

package picker

import (
	"math/rand/v2"
	"testing"

	"github.com/mlbalancer/mlbalancer/breaker"
)

// The slow loop of a channel with a thousand endpoints, ten times a second.
func BenchmarkGuardWatch(b *testing.B) {
	members, status := fleet(1000)
	g := NewGuard(breaker.DefaultConfig(), rand.Uint64)
	plan := planOf(Defaults("ring"))
	plan.Guard = g
	t := NewTable(nil, plan, members, status, rand.Uint64)
	breakers := make([]*breaker.Breaker, len(members))
	for i, m := range members {
		breakers[i] = m.Breaker()
	}
	g.Group.Set(1, breakers)
	now := int64(1)
	for b.Loop() {
		now += 1e8
		g.Watch(t, now)
	}
}

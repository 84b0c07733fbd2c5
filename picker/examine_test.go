package picker

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mlbalancer/mlbalancer/breaker"
)

// What an endpoint did before its breaker opened must not keep calls from it once probes have closed the breaker.
func TestTheScoreStartsAnewWhenTheBreakerCloses(t *testing.T) {
	t.Parallel()
	members, status := fleet(2)
	e := members[0].Endpoint
	plan := planOf(Defaults("p2c"))
	config := breaker.DefaultConfig()
	config.ConsecutiveFailures, config.MinRequests = 20, 20 // enough to make a score
	plan.Guard = NewGuard(config, rand.Uint64)
	plan.Guard.Group.Set(1, []*breaker.Breaker{e.Breaker(), members[1].Endpoint.Breaker()})
	table := NewTable(nil, plan, members, status, rand.Uint64)
	now := int64(time.Hour)
	call := func(o Outcome) {
		q := Query{Now: now, Avoid: []*Endpoint{members[1].Endpoint}}
		var a Attempt
		if table.Place(&q, 0, &a).Index == 0 {
			a.End(now+int64(time.Millisecond), o, 0, true)
		} else {
			a.End(now, Unsent, 0, true)
		}
	}
	look := func() {
		now += int64(100 * time.Millisecond)
		plan.Guard.Watch(table, now)
	}
	for e.Breaker().State() != breaker.Open {
		for range 20 {
			call(Failure)
		}
		look()
	}
	for range 10 {
		look()
	}
	require.Zero(t, e.Health().Parts.Errors.Value)
	require.True(t, e.Health().Parts.Errors.Known)
	require.Less(t, e.Health().Score, .2)
	for range 100 {
		look()
		if call(Success); e.Breaker().State() == breaker.Closed {
			break
		}
	}
	require.Equal(t, breaker.Closed, e.Breaker().State())
	look()
	assert.Equal(t, 1.0, e.Health().Score)
	assert.True(t, e.well())
}

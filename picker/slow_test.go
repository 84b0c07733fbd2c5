package picker

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mlbalancer/mlbalancer/breaker"
)

// TestBusyEndpointIsNotTakenToHang looks at when a call is slow, on an endpoint that has to load models and on one that has not.
func TestBusyEndpointIsNotTakenToHang(t *testing.T) {
	members, status := fleet(1)
	e := members[0].Endpoint
	plan := planOf(Defaults("ring"))
	plan.Guard = NewGuard(breaker.DefaultConfig(), rand.Uint64)
	table := NewTable(nil, plan, members, status, rand.Uint64)
	now := int64(time.Hour)
	slow := func(model string) time.Duration {
		q := Query{Request: Request{ModelID: model}, Key: Key(model), Now: now}
		var a Attempt
		require.Zero(t, table.Place(&q, 0, &a).Index)
		slow := a.Slow()
		a.End(now, Unsent, 0, false)
		return slow
	}
	serve := func(model string, took time.Duration) {
		q := Query{Request: Request{ModelID: model}, Key: Key(model), Now: now}
		var a Attempt
		require.Zero(t, table.Place(&q, 0, &a).Index)
		now += int64(took)
		a.End(now, Success, 0, true)
	}

	require.Zero(t, slow("warm"), "nothing is known")
	serve("warm", 100*time.Millisecond)
	require.Equal(t, 500*time.Millisecond, slow("warm"), "five times as long as ever")
	serve("cold", 5*time.Second)
	require.Equal(t, 15*time.Second, slow("warm"), "the endpoint took long for another model")
	for range 1000 {
		serve("warm", 100*time.Millisecond)
	}
	require.InDelta(t, 500*time.Millisecond, slow("warm"), float64(50*time.Millisecond), "that is long ago")
	require.Zero(t, slow("other"), "nothing is known of this one")

	e.Reconnected(now)
	require.Zero(t, slow("warm"), "the server may have to load it again")
	serve("warm", 100*time.Millisecond)
	require.NotZero(t, slow("warm"))
}

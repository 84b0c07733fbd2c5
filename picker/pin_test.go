package picker

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mlbalancer/mlbalancer/breaker"
)

// pinning places calls that share a pin.
type pinning struct {
	*Table
	pin *Pin
	q   Query
}

func newPinning(n int) *pinning {
	members, status := fleet(n)
	plan := planOf(Defaults("p2c"))
	plan.Guard = NewGuard(breaker.DefaultConfig(), rand.Uint64)
	var breakers []*breaker.Breaker
	for _, m := range members {
		breakers = append(breakers, m.Breaker())
	}
	plan.Guard.Group.Set(1, breakers)
	return &pinning{Table: NewTable(nil, plan, members, status, rand.Uint64), pin: NewPin("sequence 7"), q: *queryFor("m")}
}

func (p *pinning) place(a *Attempt) Choice {
	p.q.Pin = p.pin
	return p.Place(&p.q, 0, a)
}

func TestPinnedCallsStayTogether(t *testing.T) {
	t.Parallel()
	p := newPinning(10)
	assert.Nil(t, p.pin.Endpoint())
	assert.Equal(t, "sequence 7", p.pin.Name())
	var first Attempt
	c := p.place(&first)
	require.GreaterOrEqual(t, c.Index, 0)
	assert.NotEqual(t, Sequence, c.Reason, "it may go anywhere")
	e := first.Endpoint()
	assert.Same(t, e, p.pin.Endpoint())
	for range 50 {
		var a Attempt
		assert.Equal(t, Choice{Index: c.Index, Reason: Sequence}, p.place(&a))
		assert.Same(t, e, a.Endpoint())
		a.End(p.q.Now+1, Success, 0, true)
	}
	assert.EqualValues(t, 50, e.Picks(Sequence))
	assert.Equal(t, 1, e.InFlight())

	// What it is to avoid, how loaded the endpoint is and that it drains are nothing to a pinned call.
	p.q.Avoid = []*Endpoint{e}
	e.drain(p.q.Now, drainFor)
	e.Begin(maxTokens, Home)
	var a Attempt
	assert.Equal(t, Choice{Index: c.Index, Reason: Sequence}, p.place(&a))
	p.q.Fresh = true
	assert.Equal(t, Choice{Index: -1, Reason: Tried}, p.place(&Attempt{}), "unless it is not to go there again")
}

func TestPinnedCallsGoNowhereElse(t *testing.T) {
	t.Parallel()
	p := newPinning(5)
	var first Attempt
	i := p.place(&first).Index
	e := first.Endpoint()
	assert.True(t, p.Lists(e) && p.Takes(e))
	inFlight := func() (n int) {
		for j := range p.Len() {
			if m := p.Member(j); m.Endpoint != nil {
				n += m.InFlight()
			}
		}
		return n
	}
	table := p.Table
	for _, tc := range []struct {
		status Status
		reason Reason
	}{{Down, Pinned}, {Pending, Wait}} {
		status := slices.Clone(table.Statuses())
		status[i] = tc.status
		p.Table = table.WithStatus(status)
		assert.Equal(t, Choice{Index: -1, Reason: tc.reason}, p.place(&Attempt{}))
		assert.True(t, p.Lists(e))
		assert.False(t, p.Takes(e))
	}

	members := slices.Clone(table.members)
	members[i].Weight = 0
	p.Table = NewTable(table, table.plan, members, table.Statuses(), rand.Uint64)
	assert.Equal(t, Choice{Index: -1, Reason: Pinned}, p.place(&Attempt{}), "it is to get no calls")

	members = slices.Clone(table.members)
	members[i] = Member{NewEndpoint(e.ID()), 1}
	p.Table = NewTable(table, table.plan, members, table.Statuses(), rand.Uint64)
	assert.Equal(t, Choice{Index: -1, Reason: Pinned}, p.place(&Attempt{}), "another server has taken its name")
	assert.False(t, p.Lists(e))

	members[i] = Member{}
	p.Table = NewTable(table, table.plan, members, table.Statuses(), rand.Uint64)
	assert.Equal(t, Choice{Index: -1, Reason: Pinned}, p.place(&Attempt{}), "it has left")
	assert.Zero(t, inFlight(), "nothing was placed elsewhere")

	p.Table = table
	assert.Equal(t, 1, inFlight())
	now := p.q.Now
	for range 10 { // until its breaker opens
		var a Attempt
		if p.place(&a).Index < 0 {
			break
		}
		now++
		a.End(now, Failure, 0, true)
	}
	require.Equal(t, breaker.Open, e.Breaker().State())
	assert.Equal(t, Choice{Index: -1, Reason: Pinned}, p.place(&Attempt{}))
	assert.True(t, p.Takes(e))
	p.q.Now += int64(time.Minute)
	var probe Attempt
	assert.Equal(t, Choice{Index: i, Reason: Probe}, p.place(&probe), "and it is tried again")
}

func TestAPinIsFreeUntilACallWasSent(t *testing.T) {
	t.Parallel()
	p := newPinning(20)
	used := map[*Endpoint]bool{}
	for range 50 {
		var a Attempt
		require.NotEqual(t, Sequence, p.place(&a).Reason)
		used[a.Endpoint()] = true
		a.End(p.q.Now, Unsent, 0, false)
		assert.Zero(t, a.Endpoint().InFlight())
	}
	assert.Greater(t, len(used), 1)

	// Of two that are under way one was sent.
	var one, two Attempt
	p.place(&one)
	require.Equal(t, Sequence, p.place(&two).Reason)
	one.End(p.q.Now, Unsent, 0, false)
	var three Attempt
	require.Equal(t, Sequence, p.place(&three).Reason)
	assert.Same(t, two.Endpoint(), three.Endpoint())
}

func TestFirstCallsOfAPinAtOnce(t *testing.T) {
	t.Parallel()
	for range 200 {
		p := newPinning(20)
		var attempts [4]Attempt
		var placing sync.WaitGroup
		for i := range attempts {
			placing.Go(func() {
				q := p.q
				q.Pin = p.pin
				p.Place(&q, 0, &attempts[i])
			})
		}
		placing.Wait()
		inFlight := 0
		for i := range p.Len() {
			inFlight += p.Member(i).InFlight()
		}
		require.Equal(t, len(attempts), p.pin.Endpoint().InFlight())
		require.Equal(t, len(attempts), inFlight)
	}
}

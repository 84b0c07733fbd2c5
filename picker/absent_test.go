package picker

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mlbalancer/mlbalancer/breaker"
	"github.com/mlbalancer/mlbalancer/health"
)

// guarded returns a table of n endpoints under a guard, with a strategy.
func guarded(strategy string, n int) (*Table, *Guard) {
	members, status := fleet(n)
	g := NewGuard(breaker.DefaultConfig(), rand.Uint64)
	breakers := make([]*breaker.Breaker, n)
	for i, m := range members {
		breakers[i] = m.Breaker()
	}
	g.Group.Set(1, breakers)
	plan := planOf(Defaults(strategy))
	plan.Guard = g
	return NewTable(nil, plan, members, status, rand.Uint64), g
}

// place sends a call and ends it.
func place(t *testing.T, table *Table, q *Query, o Outcome) Choice {
	t.Helper()
	var a Attempt
	c := table.Place(q, 0, &a)
	if c.Index >= 0 {
		a.End(q.Now, o, 0, true)
	}
	return c
}

func TestAbsenceDoublesUpToHalfAMinute(t *testing.T) {
	var a absentees
	e, model, now := NewEndpoint("e"), Key("m"), int64(time.Hour)
	for _, want := range []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 30 * time.Second, 30 * time.Second} {
		a.missed(e, model, now)
		a.missed(e, model, now) // answers that were on their way together count once
		assert.True(t, a.absent(e, model, now+int64(want)-1))
		now += int64(want)
		assert.False(t, a.absent(e, model, now))
	}
	now += int64(time.Minute) // long forgotten
	a.missed(e, model, now)
	assert.False(t, a.absent(e, model, now+minAbsence))
	a.missed(e, model, now+minAbsence)
	a.found(e, model, now+minAbsence)
	assert.False(t, a.absent(e, model, now+minAbsence))
	assert.False(t, a.absent(NewEndpoint("other"), model, now))
}

// A flood of names takes no more room than there is, and the newest are known.
func TestAbsencesAreBounded(t *testing.T) {
	var a absentees
	e, now := NewEndpoint("e"), int64(time.Hour)
	for i := range 100_000 {
		now++
		a.missed(e, Key(fmt.Sprint(i)), now)
	}
	known := 0
	for i := range 100_000 {
		if a.absent(e, Key(fmt.Sprint(i)), now) {
			known++
		}
	}
	assert.LessOrEqual(t, known, absentSlots)
	assert.True(t, a.absent(e, Key("99999"), now))
}

// A new connection is a new server: what the old one lacked is asked for again.
func TestAbsenceEndsWithTheConnection(t *testing.T) {
	var a absentees
	e, model, now := NewEndpoint("e"), Key("m"), int64(time.Hour)
	a.missed(e, model, now)
	e.Reconnected(now)
	assert.False(t, a.absent(e, model, now))
}

// A model that one endpoint lacks is asked for elsewhere; one that all lack is asked for where it would be at home, so that the caller
// gets a server's own answer, and nowhere twice for one call.
func TestAModelThatNobodyHolds(t *testing.T) {
	for _, strategy := range Strategies() {
		t.Run(strategy, func(t *testing.T) {
			table, _ := guarded(strategy, 3)
			q := queryFor("typo")
			q.Now = int64(time.Hour)
			asked := map[int]bool{}
			for range 3 {
				c := place(t, table, q, Misplaced)
				require.False(t, asked[c.Index], "asked again within its absence")
				asked[c.Index] = true
			}
			c := place(t, table, q, Misplaced)
			require.GreaterOrEqual(t, c.Index, 0, "somebody has to say that it is not there")
			q.Avoid, q.Fresh = []*Endpoint{table.Member(c.Index).Endpoint}, true
			assert.Equal(t, Choice{Index: -1, Reason: Tried}, place(t, table, q, Misplaced))
			assert.False(t, q.anywhere || q.again)
			other := queryFor("other")
			other.Now = q.Now
			assert.GreaterOrEqual(t, place(t, table, other, Success).Index, 0)
		})
	}
}

// A guard that has something to say costs no allocation.
func TestPlaceAllocatesNothing(t *testing.T) {
	for _, strategy := range Strategies() {
		table, g := guarded(strategy, 5)
		q := queryFor("m")
		q.Now = int64(time.Hour)
		var a Attempt
		for range 3 { // a fault, an absence and a drain among them
			table.Place(q, 0, &a)
			a.End(q.Now, ModelFault, 0, true)
		}
		g.absent.missed(table.Member(0).Endpoint, q.Key, q.Now)
		table.Member(1).Endpoint.drain(q.Now, drainFor)
		assert.Zero(t, testing.AllocsPerRun(200, func() {
			if c := table.Place(q, q.Now+int64(time.Second), &a); c.Index >= 0 {
				a.End(q.Now+1000, Success, 0, true)
			}
		}), strategy)
	}
}

// A server that says a model has become ready is asked for it at once, whatever it answered before.
func TestAbsenceEndsWhenTheModelIsReady(t *testing.T) {
	w := newWard()
	model := Key("m")
	ready := health.Report{Models: models(health.ModelReady, "m")}
	w.g.absent.missed(w.e, model, w.now)
	w.says(0, health.Report{Models: models(health.ModelLoading, "m")})
	assert.True(t, w.g.absent.absent(w.e, model, w.now))
	w.says(0, ready)
	assert.False(t, w.g.absent.absent(w.e, model, w.now))
	w.g.absent.missed(w.e, model, w.now)
	w.says(0, ready)
	assert.True(t, w.g.absent.absent(w.e, model, w.now), "that it still says so is no news")
}

// A server that loads nothing for a call, names models and not this one is believed at once when it answers that it does not hold it.
func TestAbsenceOfAModelThatIsNotNamed(t *testing.T) {
	w := newWard()
	w.says(0, health.Report{OnDemand: health.No, Models: models(health.ModelReady, "named")})
	for model, want := range map[string]int64{"named": minAbsence, "other": maxAbsence} {
		assert.True(t, w.takes(model), model)
		w.g.absent.missed(w.e, Key(model), w.now)
		assert.True(t, w.g.absent.absent(w.e, Key(model), w.now+want-1), model)
		assert.False(t, w.g.absent.absent(w.e, Key(model), w.now+want), model)
	}
}

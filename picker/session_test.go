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

// sessionFleet is a fleet whose servers say what they hold, and its guard and table. All is idle.
type sessionFleet struct {
	*Table
	guard *Guard
	now   int64
}

func newSessionFleet(n int) *sessionFleet {
	rng := rand.New(rand.NewPCG(1, 2))
	members, status := fleet(n)
	f := &sessionFleet{guard: NewGuard(breaker.DefaultConfig(), rng.Uint64), now: int64(time.Hour)}
	for _, m := range members {
		m.Reconnected(f.now)
	}
	plan := planOf(Defaults("affinity"))
	plan.Guard = f.guard
	f.Table = NewTable(nil, plan, members, status, rng.Uint64)
	f.now += int64(time.Second)
	return f
}

// hold has the members at some indices say that they hold the model "m", and all others that they hold "other".
func (f *sessionFleet) hold(indices ...int) {
	names := make([]string, f.Len())
	for i := range names {
		names[i] = "other"
	}
	for _, i := range indices {
		names[i] = "m"
	}
	f.now += int64(100 * time.Millisecond)
	for i, name := range names {
		f.guard.Report(f.Member(i).Endpoint, 0, f.now, &health.Report{
			Server: health.ServerReady, Models: models(health.ModelReady, name), Complete: true, OnDemand: health.Yes,
			Load: health.Load{Has: health.HasActive | health.HasWorkers, Workers: 4},
		})
	}
	f.guard.Watch(f.Table, f.now)
	f.now += int64(time.Millisecond)
}

func (f *sessionFleet) pick(key string) Choice {
	q := Query{Request: Request{ModelID: "m", AffinityKey: key}, Key: Key("m"), Now: f.now}
	return f.Pick(&q)
}

// homes returns where each of n sessions belongs.
func (f *sessionFleet) homes(t *testing.T, n int) []int {
	homes := make([]int, n)
	for i := range homes {
		c := f.pick(fmt.Sprint("session-", i))
		require.Equal(t, Session, c.Reason)
		homes[i] = c.Index
	}
	return homes
}

func upTo(n int) (indices []int) {
	for i := range n {
		indices = append(indices, i)
	}
	return indices
}

func TestSessionsStayOnOneHolder(t *testing.T) {
	t.Parallel()
	for _, holders := range []int{1, 2, 8, 9, 40} {
		f := newSessionFleet(50)
		f.hold(upTo(holders)...)
		const sessions = 1000
		homes := f.homes(t, sessions)
		assert.Equal(t, homes, f.homes(t, sessions))
		calls := make([]int, f.Len())
		for _, i := range homes {
			calls[i]++
		}
		for i, n := range calls {
			switch mean := sessions / holders; {
			case i >= holders:
				assert.Zero(t, n, "endpoint %d does not hold the model", i)
			case holders <= sessionSet:
				assert.InDelta(t, mean, n, 0.3*float64(mean), "endpoint %d of %d", i, holders)
			default:
				assert.Less(t, n, 4*mean, "endpoint %d of %d", i, holders)
				assert.Positive(t, n, "endpoint %d of %d", i, holders)
			}
		}

		without := f.pick("")
		assert.Equal(t, Warm, without.Reason)
	}
}

// Other clients hear of holders in another order, and list the endpoints in another.
func TestClientsAgreeOnSessions(t *testing.T) {
	t.Parallel()
	one, two := newSessionFleet(12), newSessionFleet(12)
	one.hold(upTo(12)...)
	for n := range 12 { // the last are the first to say it
		two.hold(upTo(12)[11-n:]...)
	}
	assert.Equal(t, one.homes(t, 200), two.homes(t, 200))
}

func TestSessionsOfOtherHoldersStay(t *testing.T) {
	t.Parallel()
	for _, holders := range []int{3, 8, 20} {
		f := newSessionFleet(30)
		f.hold(upTo(holders)...)
		const sessions = 2000
		before := f.homes(t, sessions)

		f.hold(upTo(holders + 1)...)
		moved := 0
		for i, home := range f.homes(t, sessions) {
			if home != before[i] {
				moved++
			}
		}
		assert.Positive(t, moved)
		assert.LessOrEqual(t, moved, 4*sessions/(holders+1), "one of %d holders is new", holders+1)

		f.hold(upTo(holders)...)
		assert.Equal(t, before, f.homes(t, sessions), "it has gone again")

		// One that is there but takes no calls moves its own sessions only.
		f.Member(0).drain(f.now, drainFor)
		for i, home := range f.homes(t, sessions) {
			require.NotZero(t, home)
			if before[i] != 0 {
				require.Equal(t, before[i], home)
			}
		}
	}
}

func TestASessionGoesElsewhereWhereItWouldWait(t *testing.T) {
	t.Parallel()
	f := newSessionFleet(10)
	f.hold(0, 1, 2)
	home := f.pick("s").Index
	e := f.Member(home).Endpoint
	stays := 0
	for ; stays < 100; stays++ {
		if c := f.pick("s"); c.Reason != Session {
			assert.NotEqual(t, home, c.Index)
			assert.Contains(t, []int{0, 1, 2}, c.Index, "holders only")
			assert.Equal(t, Warm, c.Reason)
			break
		}
		e.Begin(DefaultTokens, Session)
	}
	// It holds four calls without a wait, and each beyond them adds a quarter of a service time.
	assert.InDelta(t, 4+4*sessionMargin, stays, 1)
	for range stays {
		e.End(DefaultTokens)
	}
	back := f.pick("s")
	assert.Equal(t, home, back.Index)
	assert.Equal(t, Session, back.Reason)
}

func TestASessionHasNoModelLoaded(t *testing.T) {
	t.Parallel()
	f := newSessionFleet(10)
	f.hold(4)
	for i := range 200 {
		c := f.pick(fmt.Sprint(i))
		require.Equal(t, 4, c.Index)
		require.Equal(t, Session, c.Reason)
	}

	q := Query{Request: Request{ModelID: "m", AffinityKey: "s"}, Key: Key("m"), Now: f.now, Avoid: []*Endpoint{f.Member(4).Endpoint}}
	c := f.Pick(&q)
	assert.NotEqual(t, 4, c.Index)
	assert.Equal(t, Cold, c.Reason, "as without a key")
}

// Where servers do not say what they hold, and in strategies that do not look, the key counts for nothing.
func TestSessionsCountForNothingElsewhere(t *testing.T) {
	t.Parallel()
	for _, name := range Strategies() {
		with := readyTable(Defaults(name), rand.New(rand.NewPCG(3, 4)).Uint64, 9)
		without := readyTable(Defaults(name), rand.New(rand.NewPCG(3, 4)).Uint64, 9)
		for i := range 50 {
			q := Query{Request: Request{ModelID: "m"}, Key: Key("m"), Now: 1}
			want := without.Pick(&q)
			q.AffinityKey = fmt.Sprint(i)
			assert.Equal(t, want, with.Pick(&q), name)
		}
	}
}

func TestSessionsAllocateNothing(t *testing.T) {
	for _, holders := range []int{3, 40} {
		f := newSessionFleet(50)
		f.hold(upTo(holders)...)
		q := Query{Request: Request{ModelID: "m", AffinityKey: "the beginning of a prompt"}, Key: Key("m"), Now: f.now}
		assert.Zero(t, testing.AllocsPerRun(1000, func() {
			if f.Pick(&q).Reason != Session {
				t.Fatal("not by the session")
			}
		}))
	}
}

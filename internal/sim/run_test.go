package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// troubled is a small fleet in which everything happens at once.
func troubled() Scenario {
	sc := small()
	sc.Servers, sc.From, sc.To = 8, 10*time.Second, 25*time.Second
	sc.Changes = []Change{
		{Kind: Slow, Count: 1, Factor: 10}, {Kind: BlackHole, Count: 1}, {Kind: BrokenModel, Count: 1}, {Kind: Join, Count: 2},
		{Kind: Leave, Count: 2},
	}
	sc.Flash = .3
	return sc
}

func run(t *testing.T, sc Scenario, policy string, seed uint64) *Result {
	t.Helper()
	r, err := Run(&sc, policy, seed)
	require.NoError(t, err)
	return r
}

func names() []string {
	var all []string
	for _, k := range Kinds() {
		all = append(all, k.Name)
		if k.Role == Ours {
			all = append(all, k.Name+"+retry", k.Name+"-breaker")
		}
	}
	return all
}

func TestEveryPolicyMeetsTheSameCallsAndLosesNone(t *testing.T) {
	t.Parallel()
	sc := troubled()
	want := run(t, sc, "round_robin", 1)
	slices.Sort(want.Starts)
	for _, name := range names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := run(t, sc, name, 1)
			slices.Sort(r.Starts)
			assert.Equal(t, want.Starts, r.Starts)
			assert.Less(t, r.Errors, len(r.Starts))
		})
	}
}

func TestTheSameSeedGivesTheSameResult(t *testing.T) {
	t.Parallel()
	for _, name := range names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := run(t, troubled(), name, 3), run(t, troubled(), name, 3)
			assert.Equal(t, a, b)
			assert.NotEqual(t, a.Latencies, run(t, troubled(), name, 4).Latencies)
		})
	}
}

func TestCountsOfCallsInFlightAreThoseOfTheServers(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"p2c", "bounded", "model_aware/ring+retry"} {
		sc := troubled()
		k, err := KindOf(name)
		require.NoError(t, err)
		f := newFleet(&sc, k, 1)
		f.run()
		own, sum := 0, 0
		for _, n := range f.own {
			assert.GreaterOrEqual(t, n, int32(0), name)
			own += int(n)
		}
		for _, s := range f.servers {
			sum += s.active() + s.waits
			assert.LessOrEqual(t, s.occupied, s.slots)
			assert.LessOrEqual(t, s.busy, sc.Workers)
		}
		assert.InDelta(t, own, sum, 5, "%s: only what a broken server is about to fail is in no queue", name)
		assert.Zero(t, f.open)
	}
}

func TestDeadlinesBoundLatency(t *testing.T) {
	t.Parallel()
	sc := small()
	sc.Rho = 3
	r := run(t, sc, "p2c", 1)
	assert.Positive(t, r.Errors)
	assert.Equal(t, float32(30), slices.Max(r.Latencies))
}

func TestBoundsAreBounds(t *testing.T) {
	t.Parallel()
	sc := small()
	sc.Servers, sc.Slots, sc.Models = 8, 3, 20
	floor := Fold(&sc, []*Result{run(t, sc, "all-resident", 1)})
	static := Fold(&sc, []*Result{run(t, sc, "static-optimum", 1)})
	assert.Zero(t, floor.Loads)
	assert.Zero(t, static.Loads)
	assert.LessOrEqual(t, floor.P99, static.P99)
	for _, name := range []string{"p2c", "ring_hash", "bounded", "greedy-oracle", "model_aware/ring"} {
		f := Fold(&sc, []*Result{run(t, sc, name, 1)})
		assert.LessOrEqual(t, floor.P99, f.P99, name)
		assert.LessOrEqual(t, floor.Mean, f.Mean, name)
	}
}

func TestStaticOptimumDividesMemoryThatIsTooSmall(t *testing.T) {
	t.Parallel()
	sc := small()
	sc.Servers, sc.Slots, sc.Models, sc.Zipf, sc.Rho = 8, 4, 60, 1.2, .2
	r, greedy := run(t, sc, "static-optimum", 1), run(t, sc, "greedy-oracle", 1)
	assert.Positive(t, r.Loads)
	assert.Less(t, r.Loads, greedy.Loads)
}

// A server that fails at once looks idle: whoever goes by calls in flight sends it more than its share.
func TestABlackHoleAttractsCalls(t *testing.T) {
	t.Parallel()
	sc, err := Find("black-hole")
	require.NoError(t, err)
	sc.From, sc.To = 5*time.Second, 25*time.Second
	share := func(policy string) float64 { return Fold(&sc, []*Result{run(t, sc, policy, 1)}).ErrorPercent }
	assert.InDelta(t, 6.25, share("round_robin"), .3)
	assert.InDelta(t, 9.5, share("p2c"), 1.5)
	assert.InDelta(t, 18.8, share("prequal"), 3)
	assert.Zero(t, share("model_aware/p2c+retry"))
	breaker, none := share("model_aware/affinity"), share("model_aware/affinity-breaker")
	assert.Less(t, breaker, 2.)
	assert.Less(t, breaker, none)
}

func TestABrokenModelFailsWhereItIsServedMost(t *testing.T) {
	t.Parallel()
	sc := small()
	sc.Changes = []Change{{Kind: BrokenModel, Count: 1}}
	r := run(t, sc, "ring_hash", 1)
	f := Fold(&sc, []*Result{r})
	assert.InDelta(t, 100*sc.shares()[0], f.ErrorPercent, 3)
}

func TestServersComeAndGo(t *testing.T) {
	t.Parallel()
	sc := small()
	sc.Changes = []Change{{Kind: Join, Count: 1}, {Kind: Leave, Count: 2}}
	k, err := KindOf("model_aware/ring")
	require.NoError(t, err)
	f := newFleet(&sc, k, 1)
	assert.Equal(t, []int32{0, 1, 2, 3}, f.members)
	r := f.run()
	assert.Equal(t, []int32{2, 3, 4}, f.members)
	assert.Positive(t, f.servers[4].uses, "the newcomer is used")
	assert.Positive(t, r.Loads)
	assert.Zero(t, f.servers[0].active(), "those that left have finished")
}

func TestSLOCountsWhatIsInTime(t *testing.T) {
	t.Parallel()
	sc := small()
	sc.Rho, sc.SLO = 1.5, 2500*time.Millisecond
	f := Fold(&sc, []*Result{run(t, sc, "all-resident", 1)})
	assert.Less(t, f.GoodputPercent, 30.)
	assert.Less(t, f.CriticalPercent, 50.)
	sc.Rho = .3
	f = Fold(&sc, []*Result{run(t, sc, "all-resident", 1)})
	assert.InDelta(t, 30, f.GoodputPercent, 8)
	assert.InDelta(t, 100, f.CriticalPercent, 2)
}

// What an independent implementation of the same model found.
func TestLatenciesOfAFleetWhereEverythingIsResident(t *testing.T) {
	t.Parallel()
	sc, err := Find("resident-70")
	require.NoError(t, err)
	sc.From, sc.To = 10*time.Second, 60*time.Second
	for policy, want := range map[string]float64{"p2c": 1.226, "weighted_round_robin": 1.310, "prequal": 1.169, "greedy-oracle": 1.152} {
		assert.InEpsilon(t, want, Fold(&sc, []*Result{run(t, sc, policy, 2)}).P99, .2, policy)
	}
}

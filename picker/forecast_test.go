package picker

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mlbalancer/mlbalancer/breaker"
	"github.com/mlbalancer/mlbalancer/health"
)

// drive has calls for "m" come at a rate for a time, without their being answered, and others keep as many calls on each endpoint as are given.
func (f *sessionFleet) drive(perSecond int, others []int, length time.Duration) {
	step := 100 * time.Millisecond
	for range int(length / step) {
		for range perSecond / 10 {
			f.guard.residency.get(Key("m")).demand.picks.Add(1)
		}
		f.now += int64(step)
		for i, n := range others {
			e := f.Member(i).Endpoint
			f.guard.Report(e, 0, f.now, &health.Report{Load: health.Load{
				Has: health.HasActive | health.HasWorkers | health.HasLoadTime, Workers: 4, LoadTime: 5 * time.Second, Active: e.InFlight() + n,
			}})
		}
		f.guard.Watch(f.Table, f.now)
	}
}

// serve has the model take a time on an endpoint, as its server reports.
func (f *sessionFleet) serve(i int, name string, d time.Duration) {
	f.Member(i).Endpoint.models.get(Key(name)).reported.Store(int64(d))
}

func TestForecast(t *testing.T) {
	t.Parallel()
	// 8 calls a second of this client that take 250 ms keep two workers busy. It has a quarter of all calls in flight.
	start := func(holders ...int) *sessionFleet {
		f := newSessionFleet(4)
		f.hold(holders...)
		for i := range f.Len() {
			f.Member(i).Endpoint.Begin(0, Warm)
		}
		for _, i := range holders {
			f.serve(i, "m", 250*time.Millisecond)
		}
		return f
	}
	others := []int{3, 3, 3, 3}

	f := start(0)
	f.drive(10, others, time.Minute)
	assert.InDelta(t, 10*.25*4/4, f.Member(0).Endpoint.foreseen(), 0.05, "all of it on one endpoint of four workers")
	assert.Zero(t, f.Member(1).Endpoint.foreseen())

	f = start(0, 2)
	f.drive(10, others, time.Minute)
	assert.InDelta(t, 1.25, f.Member(0).Endpoint.foreseen(), 0.05, "half of it on each of two")
	assert.InDelta(t, 1.25, f.Member(2).Endpoint.foreseen(), 0.05)

	f.Member(2).Endpoint.drain(f.now, int64(time.Hour))
	f.drive(10, others, time.Minute)
	assert.InDelta(t, 2.5, f.Member(0).Endpoint.foreseen(), 0.05, "the other one takes no calls")
	assert.InDelta(t, 0, f.Member(2).Endpoint.foreseen(), 0.05)

	f = start(0)
	f.drive(10, make([]int, 4), time.Minute)
	assert.InDelta(t, 10*.25/4, f.Member(0).Endpoint.foreseen(), 0.02, "nobody else has calls")
	f.drive(0, make([]int, 4), 2*time.Minute)
	assert.InDelta(t, 0, f.Member(0).Endpoint.foreseen(), 0.001, "there are no more")
}

// Endpoints that are busy with other models are dealt less of what several hold.
func TestForecastSparesTheBusy(t *testing.T) {
	t.Parallel()
	f := newSessionFleet(2)
	f.hold(0, 1)
	f.serve(0, "m", 250*time.Millisecond)
	f.serve(1, "m", 250*time.Millisecond)
	e := f.Member(0).Endpoint
	f.guard.Report(e, 0, f.now, &health.Report{Server: health.ServerReady, Complete: true, Models: models(health.ModelReady, "m", "mine")})
	f.serve(0, "mine", 250*time.Millisecond)
	f.Member(0).Endpoint.Begin(0, Warm)
	for range 600 {
		f.guard.residency.get(Key("mine")).demand.picks.Add(1)
		f.drive(10, []int{0, 0}, 100*time.Millisecond)
	}
	a, b := e.foreseen(), f.Member(1).Endpoint.foreseen()
	assert.InDelta(t, 20*.25/4, a+b, 0.02, "nothing is lost")
	assert.Less(t, a-b, 0.4, "evenly it would be .94 and .31")
	assert.Greater(t, a, b)
}

// A client that seldom has a call in flight is seldom seen to have one: that makes neither its share of the calls nothing nor the work endless.
func TestForecastOfRareCalls(t *testing.T) {
	t.Parallel()
	f := newSessionFleet(2)
	f.hold(0)
	f.serve(0, "m", 10*time.Millisecond)
	others := []int{5, 5}
	f.drive(10, others, 10*time.Minute) // no tick sees one
	e := f.Member(0).Endpoint
	assert.InDelta(t, 10.1/4, e.foreseen(), 0.1, "all the calls in flight, at most")
	e.Begin(0, Warm)
	f.drive(10, others, 200*time.Millisecond)
	e.End(0)
	f.drive(10, others, 10*time.Minute)
	assert.InDelta(t, 10.1/4, e.foreseen(), 0.1)
	f.drive(0, others, 3*time.Hour)
	assert.InDelta(t, 0, e.foreseen(), 0.01)
	f.drive(10, others, time.Second)
	require.False(t, math.IsNaN(e.foreseen()) || math.IsInf(e.foreseen(), 0))
}

// A forecast follows a change within a few loads.
func TestForecastFollows(t *testing.T) {
	t.Parallel()
	f := newSessionFleet(2)
	f.hold(0)
	f.serve(0, "m", 250*time.Millisecond)
	f.Member(0).Endpoint.Begin(0, Warm)
	f.drive(10, []int{0, 0}, time.Minute)
	before := f.Member(0).Endpoint.foreseen()
	f.drive(40, []int{0, 0}, 15*time.Second)
	assert.Greater(t, f.Member(0).Endpoint.foreseen(), 3*before)
}

// What the configuration says of servers that do not say it themselves counts here too.
func TestForecastGoesByTheConfiguration(t *testing.T) {
	t.Parallel()
	f := newSessionFleet(2)
	plan := f.plan
	plan.Inference = &AffinityOptions{EndpointConcurrency: 64, ColdLoad: breaker.Duration(time.Second)}
	f.Table = NewTable(nil, plan, f.members, f.status, func() uint64 { return 0 })
	f.hold(0)
	f.serve(0, "m", 250*time.Millisecond)
	for range 400 {
		f.guard.residency.get(Key("m")).demand.picks.Add(5)
		f.now += int64(100 * time.Millisecond)
		e := f.Member(0).Endpoint
		f.guard.Report(e, 0, f.now, &health.Report{Load: health.Load{Has: health.HasActive}})
		e.facts.workers.Store(0) // of hold
		f.guard.Watch(f.Table, f.now)
	}
	assert.InDelta(t, 50*.25/64, f.Member(0).Endpoint.foreseen(), 0.02)
	assert.InDelta(t, 2e9, f.guard.forecast.memory, 1)
}

// Endpoints of weight 0 take no calls; those that are barred do in panic, when all are alike.
func TestForecastOfThoseThatTakeNoCalls(t *testing.T) {
	t.Parallel()
	f := newSessionFleet(3)
	f.hold(0, 1, 2)
	shut := f.Member(1).Endpoint
	shut.drain(f.now, int64(time.Hour))
	weights := slices.Clone(f.members)
	weights[2].Weight = 0
	f.Table = NewTable(f.Table, f.plan, weights, f.status, func() uint64 { return 0 })
	share := func(i int) float64 { return f.guard.eligibility(f.Table, f.Member(i).Endpoint, f.now) }
	assert.Positive(t, share(0))
	assert.Zero(t, share(1))
	assert.Zero(t, share(2))
	f.guard.panic.Store(true)
	assert.Positive(t, share(1))
	assert.Zero(t, share(2))
}

// What a server said of others' calls is nothing once it has been silent for long.
func TestOthersAgeToNothing(t *testing.T) {
	t.Parallel()
	e := NewEndpoint("e")
	now := int64(time.Hour)
	e.Note(now, &health.Load{Has: health.HasActive, Active: 5})
	assert.EqualValues(t, 5, e.facts.others(now+maxFactsAge))
	assert.Zero(t, e.facts.others(now+maxFactsAge+1))
}

func TestWhatIsHeardBoundsTheMemory(t *testing.T) {
	t.Parallel()
	f := newSessionFleet(2)
	f.hold(0)
	memory := func() float64 { return f.inference.(*affinity).memory(f.Table) }
	const unheard = 2 * 10e9 // coldLoad's default
	assert.InDelta(t, unheard, memory(), 1)
	for load, want := range map[time.Duration]float64{
		time.Millisecond: minMemory, 2 * time.Second: 4e9, time.Hour: maxMemory, 0: unheard,
	} {
		f.guard.Report(f.Member(0).Endpoint, 0, f.now, &health.Report{Load: health.Load{Has: health.HasLoadTime, LoadTime: load}})
		assert.InDelta(t, want, memory(), 1, "a load of %v", load)
	}
}

func TestLasting(t *testing.T) {
	t.Parallel()
	e := NewEndpoint("e")
	assert.Equal(t, 1.0, e.lasting(), "nothing is known of others' calls")
	e.Note(1, &health.Load{Has: health.HasActive})
	last := 0.0
	for u := 0.0; u < 3; u += 0.05 {
		e.forecast.Store(math.Float64bits(u))
		l := e.lasting()
		require.GreaterOrEqual(t, l, last, "at %v", u)
		require.LessOrEqual(t, l, float64(maxLasting))
		if u <= calm {
			require.Zero(t, l)
		}
		last = l
	}
	assert.Equal(t, float64(maxLasting), last)
	e.forecast.Store(math.Float64bits(pressed))
	assert.InDelta(t, 1, e.lasting(), 1e-9)
}

// What a load would push out costs the less the longer it has not been used, less where others hold it, and that counts for nothing where another
// load takes it first.
func TestEviction(t *testing.T) {
	t.Parallel()
	const load = float64(5 * time.Second)
	x := estimator{now: int64(time.Hour), chain: 3}
	cost := func(v health.Victim, age time.Duration, copies int32, before float64) float64 {
		e := NewEndpoint("e")
		e.Note(x.now, &health.Load{Has: health.HasVictim, Victim: v, VictimModel: Key("v"), VictimAge: age})
		e.facts.copied.Store(copies)
		c, _ := x.eviction(e, load, before)
		return c
	}
	assert.Zero(t, cost(health.VictimNone, 0, 1, 0))
	assert.Equal(t, 6*load, cost(health.VictimBusy, 0, 1, 0))
	assert.InDelta(t, 3*load, cost(health.VictimIdle, time.Millisecond, 1, 0), 1)
	assert.InDelta(t, 3*load*(1-math.Exp(-1)), cost(health.VictimIdle, 20*time.Second, 1, 0), 1e6)
	assert.InDelta(t, 0.7*load, cost(health.VictimIdle, time.Millisecond, 2, 0), 1, "others hold it")
	assert.InDelta(t, 3*load, cost(health.VictimIdle, time.Millisecond, 2, 1), 1, "another load takes it first")
	c, chain := x.eviction(NewEndpoint("silent"), load, 0)
	assert.Zero(t, c)
	assert.Equal(t, 3.0, chain)
}

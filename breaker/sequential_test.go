package breaker

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fleet is a group whose endpoints fail at given rates, called in random order at 100 calls a second each.
type fleet struct {
	*world
	rng    *rand.Rand
	rates  []float64
	called []int // calls of each endpoint since reset
}

func newFleet(t *testing.T, seed uint64, n int, rate float64, edit func(*Config)) *fleet {
	f := &fleet{world: newWorld(t, n, edit), rng: rand.New(rand.NewPCG(seed, 9)), rates: make([]float64, n), called: make([]int, n)}
	f.setRates(rate)
	return f
}

func (f *fleet) setRates(rate float64) {
	for i := range f.rates {
		f.rates[i] = rate
	}
}

// run makes n calls, or fewer if stop says so.
func (f *fleet) run(n int, stop func() bool) {
	step := time.Second / time.Duration(100*len(f.members))
	for range n {
		f.wait(step)
		if f.now/int64(100*time.Millisecond) != (f.now-int64(step))/int64(100*time.Millisecond) {
			f.tick()
		}
		i := f.rng.IntN(len(f.members))
		p, ok := f.members[i].Allow(f.now, time.Second)
		if !ok {
			continue
		}
		f.called[i]++
		o := Success
		if f.rng.Float64() < f.rates[i] {
			o = Failure
		}
		f.members[i].Done(p, f.now, o)
		if stop != nil && stop() {
			return
		}
	}
}

func onlySequential(c *Config) {
	c.ConsecutiveFailures, c.FailureRatio, c.SlowCall.Ratio, c.Sequential = 0, 0, 0, true
}

// detect returns how many calls of one of n endpoints it takes to open it once it fails at a rate, while the others fail at the
// base rate: the median and the worst of a number of trials.
func detect(t *testing.T, trials, n int, base, rate float64, edit func(*Config)) (median, worst int) {
	counts := make([]int, trials)
	for trial := range counts {
		f := newFleet(t, uint64(trial), n, base, edit)
		f.run(200*n, nil)
		require.Zero(t, f.openCount())
		f.rates[0], f.called[0] = rate, 0
		f.run(1_000_000, func() bool { return f.members[0].State() == Open })
		require.Equal(t, Open, f.members[0].State())
		counts[trial] = f.called[0]
	}
	slices.Sort(counts)
	t.Logf("n=%d, %v of %v: median %d, 90 %% %d, worst %d calls", n, rate, base, counts[trials/2], counts[trials*9/10], counts[trials-1])
	return counts[trials/2], counts[trials-1]
}

func allRules(c *Config) { c.Sequential = true }

func TestSequentialFindsOneThatFailsAFifth(t *testing.T) {
	for _, test := range []struct {
		n     int
		rules func(*Config)
		want  int
	}{
		{5, onlySequential, 20},
		{10, onlySequential, 20},
		{10, allRules, 20},
		// Of a few, the others must be known to be healthy, too.
		{3, onlySequential, 25},
		{2, onlySequential, 35},
	} {
		median, _ := detect(t, 401, test.n, 0.001, 0.2, test.rules)
		assert.LessOrEqual(t, median, test.want, "n=%d", test.n)
	}
}

func TestSequentialFindsADeadOne(t *testing.T) {
	median, _ := detect(t, 101, 10, 0.001, 1, onlySequential)
	assert.LessOrEqual(t, median, 5)
	for _, n := range []int{2, 10} {
		_, worst := detect(t, 101, n, 0.001, 1, allRules)
		assert.LessOrEqual(t, worst, 5, "n=%d", n)
	}
}

func TestSequentialNeedsMoreWhereTheRestFailsToo(t *testing.T) {
	median, _ := detect(t, 101, 10, 0.02, 0.3, onlySequential)
	assert.LessOrEqual(t, median, 60)
}

func TestSequentialOpensNothingHealthy(t *testing.T) {
	f := newFleet(t, 1, 10, 0.001, func(c *Config) { c.Sequential = true })
	f.run(1_000_000, nil)
	assert.Empty(t, f.rules(), "a million calls at 0.1 %%")

	for _, rate := range []float64{0, 0.01, 0.05} {
		f := newFleet(t, 2, 10, rate, onlySequential)
		f.run(300_000, nil)
		assert.Empty(t, f.rules(), "%v", rate)
	}
}

func TestSequentialOpensNothingWhenAllFailAlike(t *testing.T) {
	for _, n := range []int{2, 3, 5, 10, 40} {
		incidents := min(20, 120/n)
		for _, rate := range []float64{0.05, 0.1, 0.2, 0.5, 1} {
			opened := 0
			for seed := range incidents {
				f := newFleet(t, uint64(seed), n, 0.001, onlySequential)
				f.run(200*n, nil)
				f.setRates(rate)
				f.run(200*n, nil)
				f.setRates(0.001)
				f.run(200*n, nil)
				opened += min(1, len(f.rules()))
			}
			t.Logf("n=%d, rate %v: opened in %d of %d incidents", n, rate, opened, incidents)
			allowed := 0
			if n < 10 { // a few endpoints may fail unequally by chance
				allowed = incidents / 5
			}
			assert.LessOrEqual(t, opened, allowed, "n=%d, rate %v", n, rate)
		}
	}
}

// Endpoints that get more calls than others are first to see an incident.
func TestSequentialOpensNothingWhenAllFailAlikeAndCallsAreUneven(t *testing.T) {
	opened := 0
	for seed := range uint64(40) {
		f := newFleet(t, seed, 10, 0.001, onlySequential)
		hot := func(n int) {
			for range n {
				f.run(1, nil)
				for range 9 {
					f.call(f.members[0], map[bool]Outcome{true: Failure, false: Success}[f.rng.Float64() < f.rates[0]])
				}
			}
		}
		hot(500)
		f.setRates(0.5)
		hot(500)
		opened += len(f.rules())
	}
	assert.Zero(t, opened)
}

func TestSequentialSeveralAtOnce(t *testing.T) {
	f := newFleet(t, 5, 10, 0.001, onlySequential)
	f.run(2000, nil)
	f.rates[1], f.rates[4], f.rates[7] = 0.2, 0.2, 0.2
	opened := map[string]bool{}
	f.run(5000, func() bool {
		f.drain()
		for _, e := range f.events {
			if e.To == Open {
				opened[e.Endpoint] = true
			}
		}
		return len(opened) == 3
	})
	assert.Equal(t, map[string]bool{"e1": true, "e4": true, "e7": true}, opened)
}

func TestSequentialKnowsNothingAlone(t *testing.T) {
	f := newFleet(t, 6, 1, 0.4, onlySequential)
	f.run(10_000, nil)
	assert.Empty(t, f.rules())
}

func TestSequentialReason(t *testing.T) {
	f := newFleet(t, 7, 10, 0.001, onlySequential)
	f.run(2000, nil)
	f.rates[3] = 1
	f.run(1000, func() bool { return f.members[3].State() == Open })
	r := f.lastReason()
	assert.Equal(t, Sequential, r.Rule)
	assert.Equal(t, r.Calls, r.Count)
	assert.InDelta(t, 4, r.Count, 1)
	assert.InDelta(t, 0.001, r.Rate, 0.002)
	assert.Greater(t, r.LLR, takeForBad)
}

func TestGroupTotalsNeverFall(t *testing.T) {
	w := newWorld(t, 60, nil) // enough to have them added up only now and then
	rng := rand.New(rand.NewPCG(8, 8))
	var successes, failures uint64
	for i := range 500 {
		b := w.members[rng.IntN(len(w.members))]
		if p, ok := b.Allow(w.now, 0); ok {
			b.Done(p, w.now, Outcome(1+rng.IntN(3)))
		}
		if i%50 == 0 {
			w.group.Set(w.now, w.members[:1+rng.IntN(len(w.members))])
		}
		s, f := w.group.totals(w.now)
		require.GreaterOrEqual(t, s, successes)
		require.GreaterOrEqual(t, f, failures)
		successes, failures = s, f
		w.wait(time.Millisecond)
	}
	require.Greater(t, successes, uint64(100), fmt.Sprint(failures))
}

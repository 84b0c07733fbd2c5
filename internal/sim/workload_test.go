package sim

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// drain returns the calls of a scenario up to its end.
func drain(sc *Scenario, seed uint64) []Call {
	c := newCatalog(sc, seed)
	a := newArrivals(sc, c, seed)
	var all []Call
	for a.at < sc.To {
		var call Call
		a.fill(&call)
		all = append(all, call)
	}
	return all
}

func TestTheOfferedWorkIsWhatTheScenarioSays(t *testing.T) {
	t.Parallel()
	for _, seed := range []uint64{1, 2} {
		sc := Defaults()
		sc.Servers = 16
		sum, square := 0.0, 0.0
		calls := drain(&sc, seed)
		for _, c := range calls {
			w := c.Work.Seconds()
			sum, square = sum+w, square+w*w
		}
		n := float64(len(calls))
		assert.InEpsilon(t, sc.Rho, sum/(float64(sc.Servers*sc.Workers)*sc.To.Seconds()), .04)
		assert.InEpsilon(t, sc.Service.Seconds(), sum/n, .02)
		cv := math.Sqrt(square/n-sum/n*sum/n) / (sum / n)
		assert.InDelta(t, .95, cv, .2, "within models .8, more over all")
	}
}

func TestArrivalsSwing(t *testing.T) {
	t.Parallel()
	sc := small()
	sc.To = 200 * time.Second
	var high, low int
	a := newArrivals(&sc, newCatalog(&sc, 1), 1)
	for _, c := range drain(&sc, 1) {
		if (c.Start+a.phase)%sc.SwingPeriod < sc.SwingPeriod/2 {
			low++
		} else {
			high++
		}
	}
	assert.InEpsilon(t, 1.25/.75, float64(high)/float64(low), .15)
}

func TestWhoCallsAndHowManyClientsThereAreDoesNotChangeTheCalls(t *testing.T) {
	t.Parallel()
	few, many := small(), small()
	many.Clients = 32
	a, b := drain(&few, 7), drain(&many, 7)
	assert.Len(t, b, len(a))
	for i := range a {
		assert.Equal(t, a[i].Work, b[i].Work)
		assert.Equal(t, a[i].Start, b[i].Start)
		assert.Less(t, b[i].Client, int32(32))
		assert.Less(t, a[i].Client, int32(4))
	}
	assert.NotEqual(t, a[0].Start, drain(&few, 8)[0].Start)
}

func TestAFlashGivesATailModelItsShare(t *testing.T) {
	t.Parallel()
	sc := small()
	sc.Flash, sc.To = .3, 200*time.Second
	var tail, all float64
	for _, c := range drain(&sc, 1) {
		if c.Start < sc.From {
			continue
		}
		all++
		if c.Model == int32(sc.Models-1) {
			tail++
		}
	}
	assert.InDelta(t, .3+.7*sc.shares()[sc.Models-1], tail/all, .03)
}

func TestATraceIsReplayedAtTheScenariosRate(t *testing.T) {
	t.Parallel()
	sc := small()
	sc.Trace = newTrace([]float64{0, 1, 5, 9}, []string{"b", "a", "a", "c"})
	calls := drain(&sc, 1)
	assert.InEpsilon(t, sc.Rho*float64(sc.Servers*sc.Workers)/sc.Service.Seconds()*sc.To.Seconds(), len(calls), .01)
	for i, want := range []string{"b", "a", "a", "c", "b", "a"} {
		assert.Equal(t, want, sc.Trace.Models[calls[i].Model])
	}
	assert.InDelta(t, float64(calls[1].Start-calls[0].Start), float64(calls[2].Start-calls[1].Start)/4, 10)
}

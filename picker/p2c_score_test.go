package picker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mlbalancer/mlbalancer/health"
)

// An endpoint that is slow scores low for it: that makes its load count as many times as it is slow, and not that many times again.
func TestP2CCountsOneReasonOnce(t *testing.T) {
	const second = int64(time.Second)
	now := int64(time.Hour)
	a, b := Member{NewEndpoint("a"), 1}, Member{NewEndpoint("b"), 1}
	c := health.DefaultConfig()
	for range 30 { // calls of which half fail, and all take twice as long as usual
		for range 50 {
			a.vitals.Success(2)
			a.vitals.Failure()
		}
		now += second
		a.score.Update(now, &c, &a.vitals, health.LoadView{})
	}
	worth := a.worth()
	require.Less(t, worth, 1/latencyBand)

	q := queryFor("m")
	q.Now = now
	la, lb := compare(&a, &b, q)
	assert.InEpsilon(t, lb/worth, la, 1e-9, "the score alone")
	for latency, times := range map[time.Duration]float64{
		time.Second + time.Second/2:                     1 / worth,
		time.Duration(3 / worth * float64(time.Second)): 3 / worth,
	} {
		a, b := Member{a.Endpoint, 1}, Member{NewEndpoint("b"), 1}
		b.Observe(now, time.Second)
		a.latency = peakEWMA{}
		a.Observe(now, latency)
		la, lb = compare(&a, &b, q)
		assert.InEpsilon(t, times*lb, la, .01, "slow by %v", latency)
	}
}

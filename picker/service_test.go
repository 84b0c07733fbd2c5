package picker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mlbalancer/mlbalancer/health"
)

// Before anything is known of models, what a load takes says how long a call may.
func TestServiceThatNobodyKnows(t *testing.T) {
	t.Parallel()
	f := newSessionFleet(1)
	service := func() time.Duration {
		own, mean := f.guard.services(f.Table, nil, &Query{})
		assert.Equal(t, own, mean)
		return time.Duration(mean)
	}
	assert.Equal(t, 250*time.Millisecond, service())
	for load, want := range map[time.Duration]time.Duration{
		250 * time.Millisecond: 12500 * time.Microsecond, 5 * time.Second: 250 * time.Millisecond, time.Minute: 250 * time.Millisecond,
	} {
		f.guard.Report(f.Member(0).Endpoint, 0, f.now, &health.Report{Load: health.Load{Has: health.HasLoadTime, LoadTime: load}})
		assert.Equal(t, want, service(), "a load of %v", load)
	}
	v := visit{endpoint: f.Member(0).Endpoint, guard: f.guard, modelID: "m", key: Key("m"), expect: int64(time.Second)}
	v.learn(f.now, 40*time.Millisecond)
	assert.Equal(t, 40*time.Millisecond, service(), "the first answer counts, whether it is sampled or not")
}

package picker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mlbalancer/mlbalancer/breaker"
	"github.com/mlbalancer/mlbalancer/health"
)

// maxReplicas bounds the copies that calls cause, whatever they wait: those that grow with the regret, and those that are sooner loaded than
// waited for.
func TestMaxReplicas(t *testing.T) {
	t.Parallel()
	for replicas, opens := range map[int]bool{0: true, 1: false, 2: true} {
		f := newSessionFleet(4)
		plan := Plan{
			Inference: &AffinityOptions{MaxReplicas: replicas, ColdLoad: breaker.Duration(time.Second)},
			Update:    Defaults("p2c"), Guard: f.guard,
		}
		f.Table = NewTable(nil, plan, f.members, f.status, func() uint64 { return 1 << 63 })
		f.hold(0)
		busy := health.Report{Load: health.Load{Has: health.HasActive | health.HasWorkers, Active: 10_000, Workers: 4}}
		f.guard.Report(f.Member(0).Endpoint, 0, f.now, &busy)
		opened := false
		for range 100 {
			c := f.pick("")
			opened = opened || c.Reason == Cold || c.Reason == Grown
			if !opens {
				require.Equal(t, Choice{Index: 0, Reason: Warm}, Choice{Index: c.Index, Reason: c.Reason}, "maxReplicas %d", replicas)
			}
		}
		assert.Equal(t, opens, opened, "maxReplicas %d", replicas)
	}
}

// An endpoint that is gone is in no model's placement, and its copies count no more.
func TestWhatIsUnheardHoldsNothing(t *testing.T) {
	t.Parallel()
	f := newSessionFleet(3)
	f.hold(0, 1)
	require.Equal(t, 2, f.guard.residency.copies(Key("m")))
	f.guard.Unheard(f.Member(0).Endpoint)
	assert.Equal(t, 1, f.guard.residency.copies(Key("m")))
	f.guard.Unheard(f.Member(1).Endpoint)
	f.guard.Unheard(f.Member(2).Endpoint)
	assert.Zero(t, f.guard.residency.copies(Key("m")))
	assert.Zero(t, f.guard.residency.copied.Load())
	assert.Zero(t, f.guard.residency.distinct.Load())
}

package integration

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	gresolver "google.golang.org/grpc/resolver"

	"github.com/mlbalancer/mlbalancer/integration/rig"
	"github.com/mlbalancer/mlbalancer/picker"
)

// A pick never waits, whatever goes on beside it: not even for the rebuild of a ring of 100,000 points. It is compared with
// round_robin, pick by pick, in the same run.
func TestPicksDoNotWaitForUpdates(t *testing.T) {
	const picks, perBatch = 40_000, 100
	var eps []gresolver.Endpoint
	for i := range 100 {
		eps = append(eps, rig.At(rig.Model(i)+":1"))
	}
	ours, theirs := rig.NewChannel(t, "model_aware"), rig.NewChannel(t, "round_robin")
	update := func(i int) {
		ours.Update([]string{`{"ring":{"virtualNodes":1000}}`, `{"ring":{"virtualNodes":1001}}`}[i%2], eps...)
		theirs.Update(`{}`, eps[i%2:]...)
	}
	update(0)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 1; ; i++ {
			select {
			case <-stop:
				return
			default:
				update(i)
			}
		}
	}()
	calls := make(rig.Calls, 1000)
	for i := range calls {
		calls[i] = picker.NewContext(t.Context(), picker.Request{ModelID: rig.Model(i)})
	}
	// What takes longer is more often interrupted by the machine, so a pick is compared with as many of round_robin's as take as long.
	same := max(1, int(quantile(ours.PickTimes(calls, perBatch, 1), .5)/quantile(theirs.PickTimes(calls, perBatch, 1), .5)))
	held := false
	for round := 0; round < 3 && !held; round++ { // a pause of the machine may fall on one side in one round
		var a, b []time.Duration
		for range picks / perBatch {
			a = append(a, ours.PickTimes(calls, perBatch, 1)...)
			b = append(b, theirs.PickTimes(calls, perBatch, same)...)
		}
		t.Logf("one pick and %d: p50 %v and %v, p99.9 %v and %v",
			same, quantile(a, .5), quantile(b, .5), quantile(a, .999), quantile(b, .999))
		held = quantile(a, .999) <= quantile(b, .999)+time.Millisecond
	}
	close(stop)
	<-stopped
	assert.True(t, held, "p99.9 of a pick is at most a millisecond over that of round_robin")
}

func quantile(d []time.Duration, q float64) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[int(q*float64(len(d)-1))]
}

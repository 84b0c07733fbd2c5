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

// A pick never waits, whatever goes on beside it: not even for the rebuild of a ring of 100,000 points. The longest pick during a
// rebuild is compared with the longest that round_robin had meanwhile: both show the machine's pauses, but only one that waits shows
// how long a rebuild takes.
func TestPicksDoNotWaitForRebuilds(t *testing.T) {
	const rebuilds, perBatch = 15, 50
	var eps []gresolver.Endpoint
	for i := range 100 {
		eps = append(eps, rig.At(rig.Model(i)+":1"))
	}
	configs := []string{`{"ring":{"virtualNodes":1000}}`, `{"ring":{"virtualNodes":2000}}`}
	ours, theirs := rig.ModelAware(t, configs[0], eps...), rig.NewChannel(t, "round_robin")
	theirs.Update(`{}`, eps...)
	calls := make(rig.Calls, 1000)
	for i := range calls {
		calls[i] = picker.NewContext(t.Context(), picker.Request{ModelID: rig.Model(i)})
	}
	// What takes longer is more often interrupted, so a pick is compared with as many of round_robin's as take as long.
	same := max(1, int(median(ours.PickTimes(calls, 1000, 1))/median(theirs.PickTimes(calls, 1000, 1))))
	var updates, a, b []time.Duration
	for i := range rebuilds {
		done := make(chan time.Duration, 1)
		go func() {
			start := time.Now()
			ours.Update(configs[(i+1)%2], eps...)
			done <- time.Since(start)
		}()
		var one, other time.Duration
		for len(done) == 0 {
			one = max(one, slices.Max(ours.PickTimes(calls, perBatch, 1)))
			other = max(other, slices.Max(theirs.PickTimes(calls, perBatch, same)))
		}
		updates, a, b = append(updates, <-done), append(a, one), append(b, other)
	}
	t.Logf("an update takes %v, the longest of our picks meanwhile %v, the longest %d of round_robin's %v",
		median(updates), median(a), same, median(b))
	assert.LessOrEqual(t, median(a), 2*median(b)+time.Millisecond)
}

func median(d []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(d))[len(d)/2]
}

package cases

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mlbalancer/mlbalancer/integration/rig"
)

// inBubble runs a test, beside others, in time of its own that passes only while all its goroutines wait: how fast this machine is
// and what else runs on it does not show. Servers must take some time, or load that never ends makes time stand still.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Parallel()
	synctest.Test(t, test)
}

// background is load that runs beside a test.
type background struct {
	cancel  context.CancelFunc
	results chan rig.Results
}

// inBackground has a number of workers send calls, each one after the other, until stop.
func inBackground(t *testing.T, workers int, call func(i int) rig.Result) *background {
	return run(t, func(ctx context.Context) rig.Results { return rig.Until(ctx, workers, call) })
}

// atRate sends calls at a rate until stop.
func atRate(t *testing.T, rate float64, call func(i int) rig.Result) *background {
	return run(t, func(ctx context.Context) rig.Results { return rig.Open(ctx, rate, call) })
}

func run(t *testing.T, load func(context.Context) rig.Results) *background {
	ctx, cancel := context.WithCancel(t.Context())
	b := &background{cancel, make(chan rig.Results, 1)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.results <- load(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return b
}

// stop ends the load and returns what became of its calls.
func (b *background) stop() rig.Results {
	b.cancel()
	return <-b.results
}

// during sends calls at a rate for some time.
func during(t *testing.T, d time.Duration, rate float64, call func(i int) rig.Result) rig.Results {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	return rig.Open(ctx, rate, call)
}

// slowOn returns a handler that takes a time for calls of one method, and none for others.
func slowOn(method string, d time.Duration) rig.Handler {
	return func(ctx context.Context, m string) error {
		if m == method {
			return rig.Wait(ctx, d)
		}
		return nil
	}
}

package integration

import (
	"runtime"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/mlbalancer/mlbalancer/integration/rig"
	"github.com/mlbalancer/mlbalancer/picker"
)

// What is known of an endpoint goes with it, though it has said which models it holds: fleets that scale up and down never forget otherwise.
func TestAnEndpointThatHasGoneIsForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := rig.New(t, 2)
		for _, b := range f.Backends {
			b.Keeps(rig.Keeping{Workers: 4}).Has("m")
		}
		c := f.Client(rig.Setup{})
		c.Informed(2)
		gone := func() weak.Pointer[picker.Endpoint] {
			for {
				ctx, call := picker.NewCall(t.Context(), nil)
				require.NoError(t, c.Invoke(rig.ForModel(ctx, "m"), rig.Infer, firstIs("m"), &wrapperspb.StringValue{}))
				if tried := call.Tried(); len(tried) == 1 && tried[0].ID() == "b0:1" {
					return weak.Make(tried[0])
				}
			}
		}()
		require.NotNil(t, gone.Value())
		c.Resolve(f.Endpoints()[1:]...)
		rig.Eventually(t, func() bool { return f.Backends[0].Open() == 0 }, time.Second, "the connection closed")
		rig.Eventually(t, func() bool {
			runtime.GC()
			return gone.Value() == nil
		}, rig.Patience, "the endpoint forgotten")
	})
}

// Of Closes at the same moment one may keep gRPC from closing the policy (see balancer's prober). Nothing may go on asking servers for that.
func TestManyClosesAtOnce(t *testing.T) {
	f := rig.New(t, 3)
	before := runtime.NumGoroutine()
	for range 50 {
		c := f.Client(rig.Setup{})
		c.Ready(3)
		var closing sync.WaitGroup
		for range 8 {
			closing.Go(func() { _ = c.Close() })
		}
		closing.Wait()
	}
	rig.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+3 }, 5*time.Second, "goroutines are as before")
}

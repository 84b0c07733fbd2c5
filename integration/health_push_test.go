package integration

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mlbalancer/mlbalancer/integration/rig"
	gpb "github.com/mlbalancer/mlbalancer/proto/mlbalancer/gpustats/v1"
)

// A change of what is asked must show neither in calls nor in what is known, whatever the servers do meanwhile.
func TestAConfigPushAsksAnewAndLosesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ready := gpb.ServerState_SERVER_STATE_READY
		f := rig.New(t, 3)
		model := rig.Model(0)
		for i, b := range f.Backends {
			b.Takes(time.Millisecond)
			b.HasModels(func() bool { return i != 1 }, model)
			b.Answers(rig.GPUStats, rig.Says(rig.Hangs, &gpb.NodeReport{State: &ready}))
			b.Answers(rig.LoadReports, rig.Hangs) // it never says a first word
		}
		c := f.Client(rig.Setup{Config: `{"inference":{"strategy":"p2c"}}`, Options: interceptors})
		c.Ready(2)
		unready := f.Backends[1]
		unready.Serving(false)
		<-time.After(2 * time.Second)
		require.Equal(t, "ready", c.Endpoint(unready.Addr()).Models[0].State)
		require.Equal(t, "not ready", c.Endpoint(unready.Addr()).Health.Server)

		ctx, cancel := context.WithCancel(t.Context())
		load := make(chan rig.Results, 1)
		go func() {
			load <- rig.Until(ctx, 1, func(i int) rig.Result { return c.Send([]string{model, ""}[i%2], limit) })
		}()
		t.Cleanup(cancel)
		for i, health := range []string{
			`"sources":["standard","oip"]`,
			`"interval":"0.5s"`,
			`"interval":"0.5s","sources":["oip"]`,
			`"sources":["standard","oip","gpustats","orca"]`,
			`"sources":["standard","oip","gpustats"],"staleAfter":"7s"`,
		} {
			asked := unready.Asked(rig.ServerReady)
			require.NoError(t, c.ResolveConfig(`{"inference":{"strategy":"p2c"},"health":{`+health+`}}`, f.Endpoints()...).Err)
			for range 100 {
				<-time.After(20 * time.Millisecond)
				e := c.Endpoint(unready.Addr())
				require.Equal(t, "not ready", e.Health.Server, "push %d", i)
				require.Equal(t, "ready", e.Models[0].State, "push %d", i)
				require.Equal(t, "ready", e.Status, "push %d", i)
			}
			require.Greater(t, unready.Asked(rig.ServerReady), asked)
		}
		cancel()
		rs := <-load
		require.Empty(t, rs.Failed(), "%v", rs)
		require.Less(t, rs.Slowest(), 10*time.Millisecond, "no call waits")
		var none rig.Results
		for _, r := range rs {
			if r.Index%2 == 1 {
				none = append(none, r)
			}
		}
		assert.Zero(t, none.By()[unready.Name], "a server that is not ready gets calls for no model")
		assert.Len(t, none.By(), 2)
		for _, b := range f.Backends {
			require.Equal(t, 1, b.Accepted())
			require.Equal(t, 3, b.Asking(), "one watch of the server, one of the model, one of its reports: others have ended")
		}
	})
}

// In panic servers are used that are not ready, as long as they have been: a push must not make newcomers of them.
func TestAConfigPushDuringPanic(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := rig.New(t, 3)
		c := f.Client(rig.Setup{Options: interceptors})
		c.Ready(3)
		for _, b := range f.Backends {
			b.Serving(false)
		}
		rig.Eventually(t, func() bool { return c.Snapshot().Panic }, time.Second, "panic")
		require.NoError(t, c.Send("m", limit).Err)
		require.NoError(t, c.ResolveConfig(`{"health":{"interval":"2s"}}`, f.Endpoints()...).Err)
		for range 100 {
			r := c.Send("m", limit)
			require.NoError(t, r.Err)
			require.Less(t, r.Took, 10*time.Millisecond)
			<-time.After(10 * time.Millisecond)
		}
		for _, e := range c.Snapshot().Endpoints {
			require.Equal(t, "not ready", e.Health.Server)
		}
	})
}

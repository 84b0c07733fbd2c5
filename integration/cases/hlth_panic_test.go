package cases

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/mlbalancer/mlbalancer/integration/rig"
	gpb "github.com/mlbalancer/mlbalancer/proto/mlbalancer/gpustats/v1"
)

// When all servers say at once that they do not serve, they are used all the same (k3s-io/k3s#10240), unless panic is off. When they say
// nothing any more, what they said does not count: there is nothing against any, and no panic.
func TestHLTH06(t *testing.T) {
	t.Parallel()
	for _, strategy := range strategies {
		section := fmt.Sprintf(`"inference":{"strategy":%q}`, strategy)
		t.Run("not serving, "+strategy, func(t *testing.T) { eachChecked(t, "{"+section+"}", testNoneServing) })
		t.Run("silent, "+strategy, func(t *testing.T) { eachChecked(t, "{"+section+"}", testSilent) })
		t.Run("panic off, "+strategy, func(t *testing.T) {
			eachChecked(t, `{"health":{"panicThreshold":0},`+section+"}", testWithoutPanic)
		})
	}
}

// fleetOf returns servers that take 2 ms for each call, and a channel to them that is connected.
func fleetOf(t *testing.T, servers int, config string) (*rig.Fleet, *rig.Client) {
	f := rig.New(t, servers)
	for _, b := range f.Backends {
		b.Takes(2 * time.Millisecond)
	}
	c := f.Client(rig.Setup{Config: config})
	c.Ready(servers)
	return f, c
}

// manyModels sends calls for a thousand models.
func manyModels(c *rig.Client) func(i int) rig.Result {
	return func(i int) rig.Result { return c.Send(rig.Model(i%1000), limit) }
}

// evenly checks that all servers of a fleet have answered about the same number of calls.
func evenly(t *testing.T, f *rig.Fleet, rs rig.Results) {
	t.Helper()
	var by []int
	for _, b := range f.Backends {
		by = append(by, rs.By()[b.Name])
	}
	t.Logf("%v", by)
	assert.LessOrEqual(t, float64(slices.Max(by)), 1.5*float64(slices.Min(by)), "%v", by)
}

func testNoneServing(t *testing.T, config string) {
	f, c := fleetOf(t, 4, config)
	load := atRate(t, 200, manyModels(c))
	rig.For(2*time.Second, tick, func(int) {})
	require.False(t, c.Snapshot().Panic)
	fell := time.Now()
	for _, b := range f.Backends {
		b.Serving(false)
	}
	rig.For(10*time.Second, tick, func(i int) {
		if i == 50 {
			for _, e := range c.Snapshot().Endpoints {
				assert.Equal(t, "not ready", e.Health.Server)
			}
			assert.True(t, c.Snapshot().Panic)
		}
	})
	rose := time.Now()
	f.Backends[0].Serving(true)
	rig.For(time.Second, tick, func(int) {})
	assert.True(t, c.Snapshot().Panic, "1 of 4 is fewer than half")
	f.Backends[1].Serving(true)
	second := time.Now()
	rig.Eventually(t, func() bool { return !c.Snapshot().Panic }, time.Second, "panic over")
	rig.For(time.Until(second.Add(time.Second)), tick, func(int) {})
	before := f.Backends[2].Started() + f.Backends[3].Started()
	rig.For(2*time.Second, tick, func(int) {})
	assert.Equal(t, before, f.Backends[2].Started()+f.Backends[3].Started(), "calls to servers that do not serve")
	rs := load.stop()
	meanwhile := rs.Between(fell, rose)
	assert.GreaterOrEqual(t, float64(len(meanwhile)-len(meanwhile.Failed())), .99*float64(len(meanwhile)), "%v", meanwhile)
	evenly(t, f, meanwhile)
}

func testSilent(t *testing.T, config string) {
	f := rig.New(t, 4)
	var models []string // that mix uses
	for i := range 100 {
		models = append(models, rig.Model(i))
	}
	for _, b := range f.Backends {
		b.Takes(2 * time.Millisecond)
		b.Answers(rig.GPUStats, rig.Says(rig.Hangs, ready()))
		b.HasModels(func() bool { return true }, models...)
	}
	c := f.Client(rig.Setup{Config: config})
	c.Ready(4)
	load := atRate(t, 200, mix(c))
	rig.For(2*time.Second, tick, func(int) {})
	require.Len(t, c.Endpoint("b0:1").Health.Sources, 3)
	for _, b := range f.Backends {
		for _, method := range []string{rig.GPUStats, rig.ServerReady, rig.Statistics} {
			b.Answers(method, rig.Hangs)
		}
	}
	silent := time.Now()
	rig.For(10*time.Second, tick, func(int) { assert.False(t, c.Snapshot().Panic) })
	for _, e := range c.Snapshot().Endpoints {
		assert.Equal(t, "ready", e.Health.Server)
		assert.Equal(t, map[string]string{"standard": "ready"}, e.Health.Sources, "what is stale is no word")
	}
	rs := load.stop()
	meanwhile := rs.Between(silent, time.Now())
	assert.Empty(t, meanwhile.Failed(), "%v", meanwhile)
	evenly(t, f, meanwhile)
}

// ready is a report of mlbalancer.gpustats.v1 that says nothing but that.
func ready() proto.Message { return &gpb.NodeReport{State: gpb.ServerState_SERVER_STATE_READY.Enum()} }

func testWithoutPanic(t *testing.T, config string) {
	f, c := fleetOf(t, 4, config)
	for _, b := range f.Backends {
		b.Serving(false)
	}
	c.Ready(0)
	rs := during(t, time.Second, 200, manyModels(c))
	require.NotEmpty(t, rs)
	require.Len(t, rs.Failed(), len(rs))
	for _, r := range rs {
		require.Equal(t, codes.Unavailable, status.Code(r.Err), "%v", r.Err)
		require.ErrorContains(t, r.Err, "by their health 4 take no calls")
		require.Less(t, r.Took, 20*time.Millisecond)
	}
	require.False(t, c.Snapshot().Panic)
	f.Backends[3].Serving(true)
	pause(t.Context(), time.Second)
	rs = during(t, time.Second, 200, manyModels(c))
	require.Empty(t, rs.Failed(), "%v", rs)
	require.Equal(t, map[string]int{"b3": len(rs)}, rs.By())
}

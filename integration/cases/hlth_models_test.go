package cases

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer/integration/rig"
)

// holding is a server's models. Calls for others are answered as Triton does.
type holding struct {
	mu      sync.Mutex
	holds   map[string]bool
	backend *rig.Backend
	calls   map[string]int // that came, by model
}

// hold makes a server hold models, which its health service names, and take 1 ms for each call.
func hold(b *rig.Backend, models ...string) *holding {
	h := &holding{holds: map[string]bool{}, backend: b, calls: map[string]int{}}
	for _, m := range models {
		h.set(m, isServing)
	}
	b.Handle(func(ctx context.Context, _ string) error {
		m := rig.Header(ctx, rig.ModelHeader)
		h.mu.Lock()
		h.calls[m]++
		held := h.holds[m]
		h.mu.Unlock()
		if !held {
			return status.Errorf(codes.NotFound, "Request for unknown model: '%s' is not found", m)
		}
		return rig.Wait(ctx, time.Millisecond)
	})
	return h
}

// set sets what the server's health service says of a model; it holds the model if that is that it serves.
func (h *holding) set(model string, s healthpb.HealthCheckResponse_ServingStatus) {
	h.mu.Lock()
	h.holds[model] = s == isServing
	h.mu.Unlock()
	h.backend.ServingStatus(model, s)
}

// load makes the server hold models that its health service does not name.
func (h *holding) load(models ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range models {
		h.holds[m] = true
	}
}

// came returns how many calls for a model came so far.
func (h *holding) came(model string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.calls[model]
}

// A server that loads one model must go on serving the others (triton-inference-server/server#5940): it says that it does not serve, and
// that its model does. It loads from the beginning on, or only after some calls.
func TestHLTH04(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprintf("late %v", late), func(t *testing.T) {
			eachChecked(t, p2c, func(t *testing.T, config string) { testLoadsAnother(t, config, late) })
		})
	}
}

func testLoadsAnother(t *testing.T, config string, late bool) {
	f := rig.New(t, 3)
	b := f.Backends
	held := []*holding{hold(b[0], "a"), hold(b[1], "a", "z"), hold(b[2], "a")}
	loads := func() { b[0].ServingStatus("z", isNotServing); b[0].Serving(false) }
	if !late {
		loads()
	}
	c := f.Client(rig.Setup{Options: dialOptions(config)})
	c.Connect()
	warm := during(t, 3*time.Second, 100, func(i int) rig.Result { return c.Send([]string{"a", "z"}[i%2], limit) })
	require.Empty(t, warm.Failed(), "%v", warm)
	if late {
		loads()
	}
	before := held[0].came("z") + held[2].came("z")
	rs := rig.Closed(4, 3300, func(i int) rig.Result {
		if i%11 == 0 {
			return c.Send("z", limit)
		}
		return c.Send("a", limit)
	})
	require.Empty(t, rs.Failed(), "%v", rs)
	var a, z rig.Results
	for _, r := range rs {
		if r.Index%11 == 0 {
			z = append(z, r)
		} else {
			a = append(a, r)
		}
	}
	t.Logf("a: %v, z: %v", a.By(), z.By())
	assert.InDelta(t, 1./3, a.Share(b[0].Name), .05)
	assert.Equal(t, map[string]int{b[1].Name: 300}, z.By())
	assert.Equal(t, before, held[0].came("z")+held[2].came("z"), "calls for z that went to servers without it")
	assert.Equal(t, "not ready", c.Endpoint(b[0].Addr()).Health.Sources["standard"])
}

// A server that is ready need not have each model (triton-inference-server/server#7588).
func TestHLTH05(t *testing.T) {
	t.Parallel()
	for _, strategy := range strategies {
		t.Run(strategy, func(t *testing.T) {
			eachChecked(t, fmt.Sprintf(`{"inference":{"strategy":%q}}`, strategy), testModelGone)
		})
	}
}

func testModelGone(t *testing.T, config string) {
	f := rig.New(t, 3)
	b := f.Backends[0]
	models := homes(t, f, 0)[:2]
	gone := models[0]
	var held []*holding
	for _, b := range f.Backends {
		held = append(held, hold(b, models...))
	}
	c := f.Client(rig.Setup{Options: dialOptions(config)})
	c.Ready(3)
	var loads []*background
	for _, m := range models {
		loads = append(loads, atRate(t, 300, func(int) rig.Result { return c.Send(m, limit) }))
	}
	began := time.Now()
	rig.For(6*time.Second, tick, func(int) {}) // shares of p2c are a matter of chance: what they are measured by takes so many calls
	type change struct {
		at   time.Time
		says healthpb.HealthCheckResponse_ServingStatus
	}
	var changes []change
	for _, s := range []healthpb.HealthCheckResponse_ServingStatus{isNotServing, isUnknown, isServing} {
		held[0].set(gone, s)
		changes = append(changes, change{time.Now(), s})
		rig.For(500*time.Millisecond, tick, func(int) {})
		came := held[0].came(gone)
		rig.For(2500*time.Millisecond, tick, func(int) {})
		if s != isServing {
			assert.Equal(t, came, held[0].came(gone), "calls for the model that came when the server had said %v", s)
		}
	}
	rig.For(3*time.Second, tick, func(int) {})
	a, other := loads[0].stop(), loads[1].stop()
	from := began.Add(time.Second)
	full, fullOther := a.Between(from, changes[0].at).Share(b.Name), other.Between(from, changes[0].at).Share(b.Name)
	end := time.Now()
	for i, ch := range changes {
		until := end
		if i+1 < len(changes) {
			until = changes[i+1].at
		}
		from := ch.at.Add(500 * time.Millisecond)
		after := a.Between(from, until)
		assert.Empty(t, after.Failed(), "%v: %v", ch.says, after)
		// p2c gives the other model the room that the first one leaves.
		assert.GreaterOrEqual(t, other.Between(from, until).Share(b.Name), fullOther-.08, "the other model keeps its share, %v", ch.says)
	}
	back := a.Between(changes[2].at.Add(time.Second), end).Share(b.Name)
	t.Logf("shares %v before, %v after", full, back)
	assert.GreaterOrEqual(t, back, full-.08, "the model has its share again")
	assert.Empty(t, other.Failed(), "%v", other)
}

// A health service that names some of a server's models says nothing of the others: they are called there as if it named none.
func TestAServerThatNamesOneOfItsModels(t *testing.T) {
	t.Parallel()
	for _, strategy := range strategies {
		t.Run(strategy, func(t *testing.T) {
			eachChecked(t, fmt.Sprintf(`{"inference":{"strategy":%q}}`, strategy), testNamesOne)
		})
	}
}

func testNamesOne(t *testing.T, config string) {
	f := rig.New(t, 3)
	b := f.Backends[0]
	models := homes(t, f, 0)[:2]
	held := make([]*holding, len(f.Backends))
	for i, b := range f.Backends {
		held[i] = hold(b)
		held[i].load(models...)
	}
	c := f.Client(rig.Setup{Options: dialOptions(config)})
	c.Ready(3)
	send := func() (named, other float64) {
		rs := during(t, 3*time.Second, 200, func(i int) rig.Result { return c.Send(models[i%2], limit) })
		require.Empty(t, rs.Failed(), "%v", rs)
		var of [2]rig.Results
		for _, r := range rs {
			of[r.Index%2] = append(of[r.Index%2], r)
		}
		return of[0].Share(b.Name), of[1].Share(b.Name)
	}
	_, before := send()
	held[0].set(models[0], isServing)
	_, after := send()
	assert.Greater(t, after, before/2, "share of the model that is not named") // chance takes p2c's shares a tenth up or down

	held[0].set(models[0], isNotServing)
	pause(t.Context(), 500*time.Millisecond)
	named, other := send()
	assert.Zero(t, named, "share of the model that is named, and does not serve")
	assert.Greater(t, other, before/2, "share of the model that is not named, when the other does not serve")
}

package interop

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mlbalancer/mlbalancer/balancer"
	"github.com/mlbalancer/mlbalancer/integration/interop/servers"
	"github.com/mlbalancer/mlbalancer/integration/rig"
)

// How each server says which models are ready: ModelStatistics, RepositoryIndex, and ModelReady for the models that are called.
func TestTritonReady(t *testing.T)   { testReady(t, servers.Triton, absentModel) }
func TestMLServerReady(t *testing.T) { testReady(t, servers.MLServer, absentModel) }
func TestKServeReady(t *testing.T)   { testReady(t, servers.KServe) }

// absentModel is in the servers' repositories, and not loaded.
var absentModel = servers.Model{Name: "absent", Later: true}

// heardLimit is how long it may take until the policy has heard what servers say of their models, which are asked every second.
const heardLimit = 5 * time.Second

// The policy knows which models are ready where, from what stock servers say, and hears of it when that changes.
func testReady(t *testing.T, k *servers.Kind, extra ...servers.Model) {
	f := newFleet(t, k, modelAware, extra...)
	for _, server := range []string{"a", "b"} {
		for _, m := range modelsOfAll() {
			f.hears(server, m, "ready")
		}
		assert.NotEqual(t, "ready", f.stateOf(server, absentModel.Name))
		assert.Equal(t, "ready", f.endpoint(server).Health.Sources["oip"])
	}
	gone := modelsOfA[0]
	require.NoError(t, f.a.Unload(f.within(), gone))
	rig.Eventually(t, func() bool { return f.stateOf("a", gone) != "ready" }, heardLimit, "%s is still ready at a", gone)
	assert.Equal(t, "ready", f.stateOf("b", gone))
	for _, m := range modelsOfB {
		assert.Equal(t, "ready", f.stateOf("a", m))
	}
}

// hears waits until the policy has heard that a model is in some state at a server.
func (f *fleet) hears(server, model, state string) {
	f.t.Helper()
	rig.Eventually(f.t, func() bool { return f.stateOf(server, model) == state }, heardLimit,
		"%s is not %s at %s", model, state, server)
}

// stateOf returns the state of a model at a server as the policy has it; empty if it has nothing to say.
func (f *fleet) stateOf(server, model string) string {
	for _, m := range f.endpoint(server).Models {
		if m.Name == model {
			return m.State
		}
	}
	return ""
}

// endpoint returns what the policy knows of a server.
func (f *fleet) endpoint(server string) balancer.EndpointState {
	f.t.Helper()
	s, err := balancer.Snapshot(f.within(), f.conn)
	require.NoError(f.t, err)
	for _, e := range s.Endpoints {
		if e.Name == server {
			return e
		}
	}
	require.FailNow(f.t, "no such endpoint", "%q", server)
	return balancer.EndpointState{}
}

package interop

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mlbalancer/mlbalancer/integration/interop/servers"
)

func TestTritonUnload(t *testing.T) {
	testUnload(t, servers.Triton, modelAware, withoutRetries, onRing, roundRobin)
}
func TestMLServerUnload(t *testing.T) {
	testUnload(t, servers.MLServer, modelAware, withoutRetries, onRing, roundRobin)
}
func TestKServeUnload(t *testing.T) {
	testUnload(t, servers.KServe, modelAware, withoutRetries, onRing, roundRobin)
}
func TestSmokeUnload(t *testing.T) { testUnload(t, servers.Triton, modelAware, roundRobin) }

// A model that was dropped on purpose from its home is called elsewhere; the others are not touched.
func testUnload(t *testing.T, k *servers.Kind, policies ...policy) {
	gone, others := modelsOfA[0], modelsOfAll()[1:]
	under(t, k, policies, nil, func(t *testing.T, f *fleet) {
		var unloaded, end time.Time
		calls := f.during(modelsOfAll(), func() {
			pass(2 * time.Second)
			unloaded = time.Now()
			f.must(f.a.Unload(f.within(), gone))
			pass(8 * time.Second)
			end = time.Now()
		})
		f.row("one model unloaded on one server", calls.all())
		if f.policy.name == roundRobin.name {
			assert.NotEmpty(t, calls.of(gone).Failed(), "the model is still there")
			return
		}
		later := calls.of(gone).Between(unloaded.Add(moveLimit), end)
		assert.Empty(t, later.Failed(), later.String())
		assert.Zero(t, later.By()["a"], "calls of a model that is not there")
		f.assertStayed(calls, others...)
		if f.policy.name != withoutRetries.name {
			assert.Empty(t, calls.all().Failed(), calls.all().String())
		}
	})
}

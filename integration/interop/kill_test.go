package interop

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mlbalancer/mlbalancer/integration/interop/servers"
)

func TestTritonKill(t *testing.T)   { testKill(t, servers.Triton) }
func TestMLServerKill(t *testing.T) { testKill(t, servers.MLServer) }
func TestKServeKill(t *testing.T)   { testKill(t, servers.KServe) }

// A server that is gone from one moment to the next, as when its memory ran out, takes no call with it. It gets calls again when
// it is back.
func testKill(t *testing.T, k *servers.Kind) {
	under(t, k, []policy{quickStart, roundRobin}, nil, func(t *testing.T, f *fleet) {
		var end time.Time
		calls := f.during(modelsOfAll(), func() {
			pass(2 * time.Second)
			f.a.Kill()
			pass(3 * time.Second)
			f.must(f.a.Start(f.within()))
			pass(12 * time.Second)
			end = time.Now()
		})
		f.row("one server killed", calls.all())
		if f.policy.name != modelAware.name {
			return
		}
		assert.Empty(t, calls.all().Failed(), calls.all().String())
		last := calls.all().Between(end.Add(-2*time.Second), end)
		assert.Positive(t, last.By()["a"], "the server that came back gets no calls: %v", last.By())
	})
}

// noticed is how long it takes at most until it is seen that calls of a model hang.
const noticed = 700 * time.Millisecond

// When the process that runs a model dies, Triton goes on and says that the model is ready; calls of it hang for a second or
// two and then fail at once. They do not take the server's other models with them.
func TestTritonKillModel(t *testing.T) {
	dead, others := modelsOfA[0], modelsOfAll()[1:]
	under(t, servers.Triton, []policy{modelAware, onRing, roundRobin}, nil, func(t *testing.T, f *fleet) {
		var killed, end time.Time
		calls := f.during(modelsOfAll(), func() {
			pass(2 * time.Second)
			f.must(f.a.KillModel(dead))
			killed = time.Now()
			pass(8 * time.Second)
			end = time.Now()
			assert.True(t, f.a.Ready(f.within(), dead), "the server noticed")
		})
		f.row("one model's process killed", calls.all())
		if f.policy.name == roundRobin.name {
			assert.NotEmpty(t, calls.of(dead).Failed(), "the model still runs")
			return
		}
		assert.Empty(t, calls.all().Failed(), calls.all().String())
		assert.Greater(t, calls.of(dead).Between(killed.Add(moveLimit), end).Share("b"), .95)
		f.assertStayed(calls, others...)
		hanging := calls.of(others...).Between(killed.Add(noticed), killed.Add(noticed+time.Second))
		assert.Positive(t, hanging.By()["a"], "nothing is sent to a server that a model hangs on")
		assert.Empty(t, f.endpoint("a").Breaker.Reason, "the breaker of the server")
	})
}

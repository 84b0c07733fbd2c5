package interop

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mlbalancer/mlbalancer/integration/interop/servers"
)

func TestTritonRestart(t *testing.T)   { testRestart(t, servers.Triton, between) }
func TestMLServerRestart(t *testing.T) { testRestart(t, servers.MLServer, between) }
func TestKServeRestart(t *testing.T)   { testRestart(t, servers.KServe, between) }
func TestSmokeRestart(t *testing.T)    { testRestart(t, servers.Triton, 6*time.Second) }

// between is how long a server that is back is left to itself before the next one is restarted, the minReadySeconds of a
// roll-out: gRPC waits that long between attempts to connect to a server that was away for ten seconds.
const between = 8 * time.Second

// A rolling restart, as a new version is brought out: each server is asked to exit, and the next one some time after it is back.
func testRestart(t *testing.T, k *servers.Kind, between time.Duration) {
	under(t, k, []policy{modelAware, roundRobin}, nil, func(t *testing.T, f *fleet) {
		calls := f.during(modelsOfAll(), func() {
			for _, s := range []*servers.Server{f.a, f.b} {
				pass(between)
				f.must(s.Restart(f.within()))
			}
			pass(between)
		}).all()
		f.row("rolling restart", calls)
		switch {
		case f.policy.name == modelAware.name:
			assert.Empty(t, calls.Failed(), calls.String())
		case k == servers.Triton:
			assert.Greater(t, len(calls.Failed()), 100, "the restart is too gentle to tell policies apart")
		}
	})
}

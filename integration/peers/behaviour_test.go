package peers

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	gbalancer "google.golang.org/grpc/balancer"
)

// pick places one call, ends it, and returns where it went.
func (f *fleet) pick(call gbalancer.PickInfo) gbalancer.SubConn {
	f.tb.Helper()
	sc, err := place(f.picker(), call)
	require.NoError(f.tb, err, f.policy.label)
	return sc
}

// The tests keep the benchmarks honest: every policy places its calls on ready connections, does with models what it is there for,
// and notices the changes that are timed.

func TestPolicySpreadsModels(t *testing.T) {
	for _, p := range policies {
		t.Run(p.label, func(t *testing.T) {
			f := newFleet(t, p, 10)
			used := map[gbalancer.SubConn]bool{}
			for _, call := range calls(withMetadata) {
				used[f.pick(call)] = true
			}
			assert.Len(t, used, 10, "endpoints in use")
		})
	}
}

func TestPolicyKeepsModelsWhereTheyAre(t *testing.T) {
	for _, p := range policies {
		t.Run(p.label, func(t *testing.T) {
			f := newFleet(t, p, 10)
			moved := 0
			for _, call := range calls(withMetadata) {
				if f.pick(call) != f.pick(call) {
					moved++
				}
			}
			if p.sticky {
				assert.Zero(t, moved, "models whose second call went elsewhere")
			} else {
				assert.Greater(t, moved, nModels/2, "models whose second call went elsewhere")
			}
		})
	}
}

func TestPolicyUsesReplacement(t *testing.T) {
	for _, p := range policies {
		t.Run(p.label, func(t *testing.T) {
			f := newFleet(t, p, 10)
			f.replace(3)
			f.reachAll()
		})
	}
}

func TestPolicyUsesConnectionThatCameBack(t *testing.T) {
	for _, p := range policies {
		t.Run(p.label, func(t *testing.T) {
			f := newFleet(t, p, 10)
			call := calls(withMetadata)[0]
			f.flap(f.pick(call).(*subConn), call)
			f.reachAll()
		})
	}
}

func TestCallsGoWhereServersSayTheirModelsAre(t *testing.T) {
	f := newFleet(t, modelAwareTold, 10)
	for _, r := range rows() {
		if r.policy.told == 0 {
			continue
		}
		for i := range nModels {
			sc, err := r.once(f.picker(), i)
			require.NoError(t, err, r.label)
			server := f.channel.server(sc.(*subConn).addr).(reporting)
			require.Contains(t, server.models, modelName(i), r.label)
		}
	}
	assert.Equal(t, nModels, f.warm(nModels))
}

// Where servers say nothing it is the model's hash that decides.
func TestRowsOfModelAwareAgree(t *testing.T) {
	f := newFleet(t, modelAware, 100)
	where := map[int]gbalancer.SubConn{}
	n := 0
	for _, r := range rows() {
		if r.policy.name != modelAware.name {
			continue
		}
		n++
		for i := range nModels {
			sc, err := r.once(f.picker(), i)
			require.NoError(t, err, r.label)
			if first, ok := where[i]; ok {
				require.Same(t, first, sc, "%s: model %d", r.label, i)
			}
			where[i] = sc
		}
	}
	assert.Equal(t, 5, n, "ways in which the policy learns of a model")
}

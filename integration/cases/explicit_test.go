package cases

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	gresolver "google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer/integration/rig"
)

// Servers that load models only when they are told to, and answer NOT_FOUND for others.

// came returns how many calls for a model came, by server.
func came(ms []*rig.Memory, model string) (n []int, sum int) {
	for _, m := range ms {
		k := m.Came(model)
		n = append(n, k)
		sum += k
	}
	return n, sum
}

// explicit starts n servers, and a channel that knows what they hold: a is on the first two, z on the second, and others on all.
func explicit(t *testing.T, n int, others ...string) (*rig.Client, []*rig.Memory) {
	f := rig.New(t, n)
	ms := keeps(f, rig.Keeping{Workers: 4}, 5*time.Millisecond)
	ms[0].Has("a")
	ms[1].Has("a")
	ms[1].Has("z")
	for _, o := range others {
		for _, m := range ms {
			m.Has(o)
		}
	}
	c := f.Client(rig.Setup{Options: dialOptions(`{}`)})
	c.Informed(n)
	return c, ms
}

func TestModelsAreCalledOnlyWhereTheyAre(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c, ms := explicit(t, 4)
		rs := rig.Closed(8, 2000, func(i int) rig.Result { return c.Send([]string{"a", "z"}[i%2], limit) })
		require.Empty(t, rs.Failed(), "%v", rs)
		a, _ := came(ms, "a")
		z, _ := came(ms, "z")
		t.Logf("a: %v, z: %v", a, z)
		assert.Equal(t, []int{0, 0}, a[2:], "calls for a where it is not")
		assert.Equal(t, []int{0, 1000, 0, 0}, z)
	})
}

// A model that nobody has gets a server's own answer, after one try where servers say what they hold and three where they do not. Each server's answer
// is remembered for a while.
func TestAModelThatNobodyHas(t *testing.T) {
	t.Parallel()
	const servers = 3
	for name, most := range map[string]int{"servers say so": 1, "servers do not say": 3} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				f := rig.New(t, servers)
				ms := keeps(f, rig.Keeping{}, time.Millisecond)
				c := f.Client(rig.Setup{Options: dialOptions(`{}`)})
				for _, m := range ms {
					m.Has("m")
				}
				if most == 1 {
					c.Informed(servers)
				} else {
					for _, b := range f.Backends {
						b.Answers(rig.GPUStats, rig.Refuses(codes.Unimplemented, "there is no such service"))
					}
					c.Ready(servers)
				}
				call := func(tries int) {
					t.Helper()
					_, before := came(ms, "typo")
					err := c.Send("typo", limit).Err
					require.Equal(t, codes.NotFound, status.Code(err), "%v", err)
					require.ErrorContains(t, err, "Request for unknown model: 'typo' is not found")
					_, after := came(ms, "typo")
					assert.True(t, before < after && after <= before+tries, "%d tries, want 1 to %d", after-before, tries)
				}
				call(most)
				call(1)
				assert.Equal(t, codes.OK, status.Code(c.Send("m", limit).Err))
			})
		})
	}
}

// A name that is mistyped all the time floods nobody: other models take as long as without it, and what comes of it is one try a call.
func TestAMistypedNameFloodsNobody(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const rate, seconds = 500, 5
		c, ms := explicit(t, 5, "m", "n", "o")
		others := func() rig.Results {
			rs := during(t, seconds*time.Second, 200, func(i int) rig.Result { return c.Send([]string{"m", "n", "o"}[i%3], limit) })
			require.Empty(t, rs.Failed(), "%v", rs)
			return rs
		}
		alone := others()
		flood := atRate(t, rate, func(int) rig.Result { return c.Send("typo", limit) })
		beside := others()
		typo := flood.stop()
		assert.Equal(t, len(typo), typo.Codes()[codes.NotFound])
		t.Logf("p99 %v alone, %v beside", percentile(alone, .99), percentile(beside, .99))
		assert.LessOrEqual(t, float64(percentile(beside, .99)), 1.1*float64(percentile(alone, .99)))
		by, all := came(ms, "typo")
		t.Logf("%v", by)
		for i, n := range by {
			assert.LessOrEqual(t, n, len(typo)/2, "tries on server %d", i)
		}
		assert.LessOrEqual(t, all, len(typo)+len(ms), "tries of %d calls", len(typo))
		for i := range ms {
			assert.InDelta(t, .2, beside.Share(rig.Server(i)), .1, "others' calls on server %d", i)
		}
		assert.Empty(t, c.Snapshot().Transitions, "no breaker has moved")
	})
}

// A model that is loaded on one server is used there once that has said so, which is at once where nothing keeps it from being told, and within the
// interval of reports in any case.
func TestAModelThatIsLoadedIsUsed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c, ms := explicit(t, 4)
		calls := atRate(t, 100, func(int) rig.Result { return c.Send("new", limit) })
		pause(t.Context(), 3*time.Second)
		loaded := time.Now()
		ms[0].Has("new")
		pause(t.Context(), 5*time.Second)
		rs := calls.stop()
		before := rs.Between(time.Time{}, loaded.Add(-10*time.Millisecond))
		assert.Equal(t, len(before), before.Codes()[codes.NotFound])
		later := rs.Between(loaded.Add(time.Second), time.Now())
		require.Empty(t, later.Failed(), "%v", later)
		assert.Equal(t, map[string]int{"b0": len(later)}, later.By())
		at, _ := came(ms, "new")
		t.Logf("%v; %d failed after it was loaded", at, len(rs.Between(loaded, time.Now()).Failed()))
	})
}

// A model that is unloaded from one server is called on others from then on, and no call fails.
func TestAModelThatIsUnloadedIsCalledElsewhere(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c, ms := explicit(t, 4)
		calls := atRate(t, 300, func(int) rig.Result { return c.Send("a", limit) })
		pause(t.Context(), 3*time.Second)
		ms[0].Lacks("a")
		pause(t.Context(), 100*time.Millisecond)
		before := ms[0].Came("a")
		require.Positive(t, before)
		pause(t.Context(), 5*time.Second)
		rs := calls.stop()
		assert.Empty(t, rs.Failed(), "%v", rs)
		assert.Equal(t, before, ms[0].Came("a"), "calls that came when the server had said that it is gone")
		assert.Zero(t, ms[2].Came("a")+ms[3].Came("a"))
	})
}

// Two channels of one process to servers of the same names share nothing of what servers hold.
func TestTwoChannelsShareNoResidency(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const servers = 3
		f := rig.New(t, 2*servers)
		ms := keeps(f, onDemand, time.Millisecond)
		holder := [2]int{0, servers + 2}
		var cs [2]*rig.Client
		for i := range cs {
			var eps []gresolver.Endpoint
			for j := range servers {
				eps = append(eps, rig.Named(fmt.Sprintf("pod-%d", j), f.Backends[i*servers+j].Addr()))
			}
			ms[holder[i]].Has("m")
			cs[i] = f.Client(rig.Setup{Endpoints: eps})
			cs[i].Informed(servers)
		}
		want := make([]int, 2*servers)
		for i, c := range cs {
			for range 100 {
				require.NoError(t, c.Send("m", limit).Err)
			}
			want[holder[i]] = 100
			by, _ := came(ms, "m")
			assert.Equal(t, want, by, "after channel %d", i)
			assert.Equal(t, map[string]uint64{"warm": 100}, picked(c))
			for j, e := range c.Snapshot().Endpoints {
				assert.Equal(t, i*servers+j == holder[i], len(e.Models) == 1, "models known of %s on channel %d", e.Name, i)
			}
		}
	})
}

package picker

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mlbalancer/mlbalancer/health"
)

// A name that nobody knows, asked for all the time, is no one server's burden.
func TestAModelThatNobodyHoldsBurdensNobody(t *testing.T) {
	const n, calls = 5, 1000
	for _, strategy := range Strategies() {
		t.Run(strategy, func(t *testing.T) {
			table, g := guarded(strategy, n)
			plan := Plan{Inference: Defaults(strategy), Update: Defaults("p2c"), Guard: g}
			table = NewTable(table, plan, table.members, table.status, rand.Uint64)
			for i := range n {
				g.Report(table.Member(i).Endpoint, 0, int64(time.Hour), &health.Report{
					Server: health.ServerReady, Models: []health.Model{{Name: "m", State: health.ModelReady}}, Complete: true, OnDemand: health.No,
				})
			}
			g.Watch(table, int64(time.Hour))
			q := queryFor("typo")
			asked := make([]int, n)
			for i := range calls {
				q.Now = int64(time.Hour) + int64(i)*int64(2*time.Millisecond)
				c := place(t, table, q, Misplaced)
				require.GreaterOrEqual(t, c.Index, 0)
				asked[c.Index]++
			}
			for i, k := range asked {
				assert.InDelta(t, calls/n, k, calls/n/2, "endpoint %d", i)
			}
		})
	}
}

// A model that has been loaded on one server and dropped on another is called where it is before the servers are asked for it the next time:
// one that said it had it, and answers that it does not, has the others asked. They say meanwhile that they are not ready.
func TestAModelThatHasJustMoved(t *testing.T) {
	for _, strategy := range Strategies() {
		t.Run(strategy, func(t *testing.T) {
			table, g := guarded(strategy, 3)
			report := func(i int, state health.ServerState, held ...string) {
				g.Report(table.Member(i).Endpoint, 0, int64(time.Hour), &health.Report{
					Server: state, Models: models(health.ModelReady, held...), Complete: true, OnDemand: health.No,
				})
			}
			report(0, health.ServerReady, "m", "a")
			report(1, health.ServerNotReady, "b")
			report(2, health.ServerNotReady, "c")
			g.Watch(table, int64(time.Hour))
			q := queryFor("m")
			q.Now = int64(time.Hour)
			// call makes attempts as retries do, and returns where it ended: at 1, where the model is, if nothing is wrong.
			call := func() (at, attempts int) {
				q.Avoid, q.Fresh = nil, false
				for {
					var a Attempt
					c := table.Place(q, 0, &a)
					if c.Index < 0 {
						return c.Index, attempts
					}
					attempts++
					e := table.Member(c.Index).Endpoint
					require.NotContains(t, q.Avoid, e, "nobody is asked twice")
					if c.Index == 1 {
						a.End(q.Now, Success, 0, true)
						return c.Index, attempts
					}
					a.End(q.Now, Misplaced, 0, true)
					q.Avoid, q.Fresh = append(q.Avoid, e), true
				}
			}
			total := 0
			for range 20 {
				at, attempts := call()
				require.Equal(t, 1, at)
				total += attempts
			}
			assert.LessOrEqual(t, total, 22, "each of the others is asked once")

			q.Now += int64(time.Second)
			g.Report(table.Member(0).Endpoint, 0, q.Now, &health.Report{Models: models(health.ModelReady, "a"), Complete: true})
			for range 20 {
				at, _ := call()
				require.Equal(t, 1, at, "the one that had it has said that it no longer does")
			}
			q.Now += int64(g.health.Load().StaleAfter)
			g.absent = absentees{}
			q.Avoid, q.Fresh = []*Endpoint{table.Member(0).Endpoint}, true
			assert.Equal(t, Choice{Index: -1, Reason: Tried}, place(t, table, q, Misplaced), "by now it would have been heard of")
		})
	}
}

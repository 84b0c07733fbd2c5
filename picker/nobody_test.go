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

package picker

import (
	"fmt"
	"math/rand/v2"
)

// fleet returns members of weight 1 named by their index, and a status of Ready for each.
func fleet(n int) ([]Member, []Status) {
	members, status := make([]Member, n), make([]Status, n)
	for i := range n {
		members[i] = Member{NewEndpoint(fmt.Sprintf("10.0.0.%d:8001", i)), 1}
		status[i] = Ready
	}
	return members, status
}

// planOf places every call by the same options.
func planOf(o Options) Plan { return Plan{Inference: o, Update: o} }

// readyTable returns a table of n ready members of weight 1.
func readyTable(o Options, rand func() uint64, n int) *Table {
	members, status := fleet(n)
	return NewTable(nil, planOf(o), members, status, rand)
}

// randomQuery returns a query for a random model.
func randomQuery(rng *rand.Rand) Query {
	q := Query{Request: Request{ModelID: fmt.Sprint("model-", rng.IntN(1e6))}, Now: 1}
	q.Key = Key(q.ModelID)
	return q
}

package picker

import "fmt"

// fleet returns members of weight 1 named by their index, and a status of Ready for each.
func fleet(n int) ([]Member, []Status) {
	members, status := make([]Member, n), make([]Status, n)
	for i := range n {
		members[i] = Member{NewEndpoint(fmt.Sprintf("10.0.0.%d:8001", i)), 1}
		status[i] = Ready
	}
	return members, status
}

// readyTable returns a table of n ready members of weight 1 that places every call by the same options.
func readyTable(o Options, rand func() uint64, n int) *Table {
	members, status := fleet(n)
	return NewTable(nil, Plan{Inference: o, Update: o}, members, status, rand)
}

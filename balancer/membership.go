package balancer

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/connectivity"
	gresolver "google.golang.org/grpc/resolver"

	"github.com/mlbalancer/mlbalancer/picker"
	"github.com/mlbalancer/mlbalancer/resolver"
)

// member is one endpoint of the last good update. All fields but child are set before it is shared; child too where it stays.
type member struct {
	endpoint *picker.Endpoint
	index    int
	weight   float64
	addrs    string // key of the address set: the same server
	resolved gresolver.Endpoint

	// Guarded by policy.mu.
	child    *child // set by the child itself
	newcomer bool   // it has joined others, and was never connected
}

// membership is the endpoints of one resolver update, by stable index: a member keeps its index for as long as it is listed, leavers leave
// holes and newcomers fill them, so that what is built over indices (the ring) can be updated instead of rebuilt. It is immutable.
type membership struct {
	byID  map[string]*member
	slots []*member // nil where there is a hole
}

// next returns the membership after a resolver update, and the endpoints to hand to the children. endpoint makes the state of an identity that
// is new, or whose addresses are. An address that two endpoints list belongs to the first; an endpoint that has none left is left out.
// Two endpoints of one name are an error.
func (ms *membership) next(update []gresolver.Endpoint, endpoint func(id, addrs string) *picker.Endpoint) (*membership, []gresolver.Endpoint, error) {
	taken := make(map[string]bool, len(update))
	next := &membership{byID: make(map[string]*member, len(update))}
	if ms != nil {
		next.slots = make([]*member, len(ms.slots), max(len(ms.slots), len(update)))
	}
	var fresh []*member
	for _, ep := range update {
		ep.Addresses = unclaimed(ep.Addresses, taken)
		if len(ep.Addresses) == 0 {
			continue
		}
		addrs := addressKey(ep.Addresses)
		id := resolver.Name(ep)
		if id == "" {
			id = addrs
		}
		if next.byID[id] != nil {
			return nil, nil, fmt.Errorf("%s: two endpoints are named %q (%s and %s), want each name once", Name, id, next.byID[id].addrs, addrs)
		}
		m := &member{weight: weightOf(ep), addrs: addrs}
		next.byID[id] = m
		if old := ms.find(id); old == nil {
			fresh = append(fresh, m)
		} else {
			m.index = old.index
			next.slots[m.index] = m
			if old.addrs == addrs {
				m.endpoint, m.child, m.newcomer = old.endpoint, old.child, old.newcomer
			}
		}
		ep.Attributes = ep.Attributes.WithValue(memberKey{}, m)
		m.resolved = ep
	}
	for id, m := range next.byID {
		if m.endpoint == nil {
			m.endpoint = endpoint(id, m.addrs)
			m.newcomer = ms != nil && len(ms.byID) > 0
		}
	}
	next.seat(fresh)
	if next.sparse() {
		next.compact()
	}
	return next, next.endpoints(), nil
}

func (ms *membership) find(id string) *member {
	if ms == nil {
		return nil
	}
	return ms.byID[id]
}

// seat gives newcomers the lowest free indices.
func (ms *membership) seat(fresh []*member) {
	at := 0
	for _, m := range fresh {
		for at < len(ms.slots) && ms.slots[at] != nil {
			at++
		}
		m.index = at
		if at == len(ms.slots) {
			ms.slots = append(ms.slots, m)
		} else {
			ms.slots[at] = m
		}
	}
}

// sparse reports whether holes are the greater part.
func (ms *membership) sparse() bool { return len(ms.slots) > 2*len(ms.byID) }

// compact removes the holes.
func (ms *membership) compact() {
	ms.slots = slices.DeleteFunc(ms.slots, func(m *member) bool { return m == nil })
	for i, m := range ms.slots {
		m.index = i
	}
}

func (ms *membership) endpoints() []gresolver.Endpoint {
	eps := make([]gresolver.Endpoint, 0, len(ms.byID))
	for _, m := range ms.slots {
		if m != nil {
			eps = append(eps, m.resolved)
		}
	}
	return eps
}

// members returns the picker's view of the membership.
func (ms *membership) members() []picker.Member {
	members := make([]picker.Member, len(ms.slots))
	for i, m := range ms.slots {
		if m != nil {
			members[i] = picker.Member{Endpoint: m.endpoint, Weight: m.weight}
		}
	}
	return members
}

// counts returns how many members are in each state, and the last error of one that fails. Caller must hold policy.mu.
func (ms *membership) counts() (connected, connecting, idle, failing int, err error) {
	for _, m := range ms.slots {
		if m == nil || m.child == nil {
			continue
		}
		switch c := m.child; {
		case c.ready != nil && c.verdict != connectivity.Connecting:
			connected++
			if c.err != nil {
				err = c.err
			}
		case c.verdict == connectivity.TransientFailure:
			failing++
			err = c.err
		case c.verdict == connectivity.Idle:
			idle++
		default:
			connecting++
		}
	}
	return connected, connecting, idle, failing, err
}

// unclaimed returns the addresses that are not taken yet, and takes them. It copies only if it leaves one out.
func unclaimed(addrs []gresolver.Address, taken map[string]bool) []gresolver.Address {
	duplicate := slices.ContainsFunc(addrs, func(a gresolver.Address) bool { return taken[a.Addr] }) || len(addrs) > 1
	if duplicate {
		kept := make([]gresolver.Address, 0, len(addrs))
		for _, a := range addrs {
			if !taken[a.Addr] {
				taken[a.Addr] = true
				kept = append(kept, a)
			}
		}
		return kept
	}
	for _, a := range addrs {
		taken[a.Addr] = true
	}
	return addrs
}

// addressKey names a set of addresses, in whatever order they come.
func addressKey(addrs []gresolver.Address) string {
	if len(addrs) == 1 {
		return addrs[0].Addr
	}
	names := make([]string, len(addrs))
	for i, a := range addrs {
		names[i] = a.Addr
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}

// weightOf returns an endpoint's weight in units; 1 if the resolver gives none.
func weightOf(ep gresolver.Endpoint) float64 {
	w, ok := resolver.Weight(ep)
	if !ok {
		return 1
	}
	return w / resolver.WeightUnit(ep)
}

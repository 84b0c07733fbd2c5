package balancer

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	gresolver "google.golang.org/grpc/resolver"

	"github.com/mlbalancer/mlbalancer/picker"
	"github.com/mlbalancer/mlbalancer/resolver"
)

func endpointAt(addrs ...string) gresolver.Endpoint {
	var ep gresolver.Endpoint
	for _, a := range addrs {
		ep.Addresses = append(ep.Addresses, gresolver.Address{Addr: a})
	}
	return ep
}

func freshEndpoint(id, _ string) *picker.Endpoint { return picker.NewEndpoint(id) }

func follow(t *testing.T, ms *membership, update ...gresolver.Endpoint) *membership {
	t.Helper()
	next, _, err := ms.next(update, freshEndpoint)
	require.NoError(t, err)
	for i, m := range next.slots {
		if m != nil {
			require.Equal(t, i, m.index)
		}
	}
	return next
}

func TestMembersKeepIndexAndState(t *testing.T) {
	a, b, c, d := endpointAt("a:1"), endpointAt("b:1"), endpointAt("c:1"), endpointAt("d:1")
	one := follow(t, &membership{}, a, b, c)
	two := follow(t, one, c, a) // another order, b gone
	require.Equal(t, []int{0, 2}, []int{two.byID["a:1"].index, two.byID["c:1"].index})
	require.Nil(t, two.slots[1])
	require.Same(t, one.byID["a:1"].endpoint, two.byID["a:1"].endpoint)
	three := follow(t, two, a, d, c) // d fills the hole
	require.Equal(t, 1, three.byID["d:1"].index)
	require.Len(t, three.slots, 3)
}

func TestMembershipIsTheSameInAnyOrder(t *testing.T) {
	one := follow(t, &membership{}, endpointAt("a:1"), endpointAt("b:1"), endpointAt("c:1"))
	two := follow(t, one, endpointAt("c:1"), endpointAt("b:1"), endpointAt("a:1"))
	require.Equal(t, one.members(), two.members())
}

func TestMembershipIsCompactedWhenMostlyHoles(t *testing.T) {
	var eps []gresolver.Endpoint
	for i := range 10 {
		eps = append(eps, endpointAt(fmt.Sprintf("h%d:1", i)))
	}
	ms := follow(t, follow(t, &membership{}, eps...), eps[7], eps[9])
	require.Len(t, ms.slots, 2)
}

func TestAnAddressBelongsToTheFirstThatListsIt(t *testing.T) {
	ms := follow(t, &membership{}, endpointAt("a:1", "b:1", "a:1"), endpointAt("b:1", "c:1"), endpointAt("c:1"), endpointAt())
	require.Len(t, ms.byID, 2)
	require.Contains(t, ms.byID, "a:1,b:1")
	require.Contains(t, ms.byID, "c:1")
}

func TestANameTwiceIsRejected(t *testing.T) {
	_, _, err := (&membership{}).next([]gresolver.Endpoint{
		resolver.WithName(endpointAt("a:1"), "x"), resolver.WithName(endpointAt("b:1"), "x")}, freshEndpoint)
	require.EqualError(t, err, `model_aware: two endpoints are named "x" (a:1 and b:1), want each name once`)
}

func TestANewAddressUnderAKnownNameStartsAnewInItsPlace(t *testing.T) {
	one := follow(t, &membership{}, endpointAt("z:1"), resolver.WithName(endpointAt("a:1"), "x"))
	two := follow(t, one, endpointAt("z:1"), resolver.WithName(endpointAt("b:1"), "x"))
	require.Equal(t, 1, two.byID["x"].index)
	require.NotSame(t, one.byID["x"].endpoint, two.byID["x"].endpoint)
	require.Same(t, one.byID["z:1"].endpoint, two.byID["z:1"].endpoint)
}

func TestWeightsAreInUnits(t *testing.T) {
	half := resolver.WithWeightUnit(resolver.WithWeight(endpointAt("a:1"), 50), 100)
	ms := follow(t, &membership{}, half, endpointAt("b:1"), resolver.WithWeight(endpointAt("c:1"), 0))
	require.Equal(t, []float64{0.5, 1, 0}, []float64{ms.byID["a:1"].weight, ms.byID["b:1"].weight, ms.byID["c:1"].weight})
}

package resolver

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc/attributes"
	gresolver "google.golang.org/grpc/resolver"
)

func at(addr string) gresolver.Endpoint {
	return gresolver.Endpoint{Addresses: []gresolver.Address{{Addr: addr}}}
}

func TestFactsAbsent(t *testing.T) {
	ep := at("a:1")
	assert.Equal(t, "", Name(ep))
	w, ok := Weight(ep)
	assert.Equal(t, 1.0, w)
	assert.False(t, ok)
	assert.Equal(t, 1.0, WeightUnit(ep))
}

func TestFactsTogether(t *testing.T) {
	ep := WithWeightUnit(WithName(WithWeight(at("a:1"), 2.5), "x"), 1<<31)
	assert.Equal(t, "x", Name(ep))
	w, ok := Weight(ep)
	assert.Equal(t, 2.5, w)
	assert.True(t, ok)
	assert.Equal(t, float64(1<<31), WeightUnit(ep))

	zero := WithWeight(ep, 0)
	w, ok = Weight(zero)
	assert.Equal(t, 0.0, w)
	assert.True(t, ok, "0 is a weight")
	assert.Equal(t, "x", Name(zero), "a new weight leaves the name")
	w, _ = Weight(ep)
	assert.Equal(t, 2.5, w, "the endpoint that the new one was made from is as it was")
	assert.Equal(t, "", Name(WithName(ep, "")), "an empty name is none")
}

func TestNotAWeight(t *testing.T) {
	for _, bad := range []float64{-1, math.NaN(), math.Inf(1), math.Inf(-1)} {
		w, ok := Weight(WithWeight(WithWeight(at("a:1"), 3), bad))
		assert.Equal(t, 1.0, w, "%v", bad)
		assert.False(t, ok, "%v", bad)
	}
	for _, bad := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		assert.Equal(t, 1.0, WeightUnit(WithWeightUnit(WithWeightUnit(at("a:1"), 100), bad)), "%v", bad)
	}
}

// Facts ride on the endpoint, never on its addresses, where a change would drop the connection.
func TestFactsLeaveAddressesAlone(t *testing.T) {
	ep := WithWeight(WithName(at("a:1"), "x"), 2)
	assert.Equal(t, at("a:1").Addresses, ep.Addresses)
}

func TestFactsLeaveOtherAttributesAlone(t *testing.T) {
	type key struct{}
	ep := at("a:1")
	ep.Attributes = attributes.New(key{}, "other")
	assert.Equal(t, "other", WithName(ep, "x").Attributes.Value(key{}))
}

func TestFactsAreComparable(t *testing.T) {
	one, two := WithWeight(WithName(at("a:1"), "x"), 2), WithName(WithWeight(at("a:1"), 2), "x")
	assert.True(t, one.Attributes.Equal(two.Attributes), "the same facts in another order")
	assert.False(t, one.Attributes.Equal(WithWeight(two, 3).Attributes))
	nan := WithWeight(at("a:1"), math.NaN())
	assert.True(t, nan.Attributes.Equal(WithWeight(at("a:1"), math.NaN()).Attributes))
}

func TestFactsPrint(t *testing.T) {
	ep := WithWeightUnit(WithWeight(WithName(at("a:1"), "x"), 2), 100)
	assert.Contains(t, ep.Attributes.String(), `name=\"x\" weight=2 weightUnit=100`)
}

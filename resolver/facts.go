package resolver

import (
	"fmt"
	"math"
	"strings"

	gresolver "google.golang.org/grpc/resolver"
)

// facts is what this package attaches to an endpoint, as one attribute. It is comparable, so that an update with the same facts
// is known to be the same.
type facts struct {
	name       string
	weight     float64
	hasWeight  bool
	weightUnit float64 // 0 means 1
}

type factsKey struct{}

func factsOf(ep gresolver.Endpoint) facts {
	f, _ := ep.Attributes.Value(factsKey{}).(facts)
	return f
}

func with(ep gresolver.Endpoint, f facts) gresolver.Endpoint {
	ep.Attributes = ep.Attributes.WithValue(factsKey{}, f)
	return ep
}

// String lists the facts that are set; it is what an endpoint prints.
func (f facts) String() string {
	var set []string
	if f.name != "" {
		set = append(set, fmt.Sprintf("name=%q", f.name))
	}
	if f.hasWeight {
		set = append(set, fmt.Sprintf("weight=%g", f.weight))
	}
	if f.weightUnit != 0 {
		set = append(set, fmt.Sprintf("weightUnit=%g", f.weightUnit))
	}
	return strings.Join(set, " ")
}

// WithName returns ep with a name: its identity, which stays when its addresses change. Without one, an endpoint is its set of
// addresses. Names must be unique within an update. An empty name means none.
func WithName(ep gresolver.Endpoint, name string) gresolver.Endpoint {
	f := factsOf(ep)
	f.name = name
	return with(ep, f)
}

// Name returns the name that WithName gave ep, or "".
func Name(ep gresolver.Endpoint) string { return factsOf(ep).name }

// WithWeight returns ep with a weight: its capacity relative to an endpoint of weight 1. 0 means that it gets no calls.
// A weight that is negative, infinite or not a number is none: ep then counts as if it had never been given one.
func WithWeight(ep gresolver.Endpoint, w float64) gresolver.Endpoint {
	f := factsOf(ep)
	f.weight, f.hasWeight = w, w >= 0 && !math.IsInf(w, 1)
	if !f.hasWeight {
		f.weight = 0
	}
	return with(ep, f)
}

// Weight returns the weight that WithWeight gave ep, and 1 and false if it has none.
func Weight(ep gresolver.Endpoint) (w float64, ok bool) {
	if f := factsOf(ep); f.hasWeight {
		return f.weight, true
	}
	return 1, false
}

// WithWeightUnit returns ep with the weight that stands for one full share, for weights on a scale of their own: xDS,
// for one, delivers them as parts of 2^31. All endpoints of an update should have the same unit. A unit that is not
// above 0, or is infinite or not a number, counts as 1.
func WithWeightUnit(ep gresolver.Endpoint, unit float64) gresolver.Endpoint {
	f := factsOf(ep)
	f.weightUnit = 0
	if unit > 0 && unit != 1 && !math.IsInf(unit, 1) {
		f.weightUnit = unit
	}
	return with(ep, f)
}

// WeightUnit returns the unit of ep's weight, 1 if WithWeightUnit gave it none.
func WeightUnit(ep gresolver.Endpoint) float64 {
	if f := factsOf(ep); f.weightUnit != 0 {
		return f.weightUnit
	}
	return 1
}

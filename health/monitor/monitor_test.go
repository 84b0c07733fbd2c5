package monitor

import (
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
)

type named struct {
	fake
	name string
}

func (n *named) Name() string { return n.name }

func TestRegister(t *testing.T) {
	before := registry
	registry = nil
	defer func() { registry = before }()
	for i := range MaxSources {
		Register(&named{name: strconv.Itoa(MaxSources - i)})
	}
	assert.Len(t, Names(), MaxSources)
	assert.True(t, slices.IsSorted(Names()))
	assert.Equal(t, "3", Lookup("3").Name())
	assert.Nil(t, Lookup("9"))
	assert.PanicsWithValue(t, `monitor: source "3" registered twice`, func() { Register(&named{name: "3"}) })
	assert.PanicsWithValue(t, "monitor: too many sources", func() { Register(&named{name: "9"}) })
}

package picker

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCallContext(t *testing.T) {
	assert.Nil(t, CallFromContext(context.Background()))

	type key struct{}
	outer := context.WithValue(context.Background(), key{}, "kept")
	ctx, call := NewCall(outer, "message")
	assert.Same(t, call, CallFromContext(ctx))
	assert.Equal(t, "message", call.Message)
	assert.Equal(t, "kept", ctx.Value(key{}))
	assert.Same(t, call, CallFromContext(context.WithValue(ctx, key{}, "wrapped")))

	inner, own := NewCall(ctx, nil)
	assert.Same(t, own, CallFromContext(inner), "the innermost RPC's")
	assert.LessOrEqual(t, testing.AllocsPerRun(100, func() { NewCall(outer, nil) }), 1.)
	assert.Zero(t, testing.AllocsPerRun(100, func() { CallFromContext(ctx) }))
}

func TestCallResolve(t *testing.T) {
	_, call := NewCall(context.Background(), "message")
	got, _ := call.Resolved()
	assert.Nil(t, got)

	req := Request{ModelID: "m", Tokens: 9}
	call.Resolve(&req, 77)
	got, key := call.Resolved()
	assert.Equal(t, &req, got)
	assert.Equal(t, uint64(77), key)
	assert.Nil(t, call.Message, "a message may be large and is not kept")
}

func TestCallTried(t *testing.T) {
	_, call := NewCall(context.Background(), nil)
	call.Decision = &Decision{}
	call.Resolve(&Request{ModelID: "m"}, 1)
	assert.Empty(t, call.Tried())
	call.Unplaced()
	assert.Zero(t, *call.Decision)

	members, _ := namedFleet(1, 1, 1, 1, 1, 1)
	endpoint := func(i int) *Endpoint { return members[i].Endpoint }
	call.Placed(endpoint(0), Home)
	assert.Equal(t, []*Endpoint{endpoint(0)}, call.Tried())
	assert.Equal(t, Decision{Endpoint: "triton-0", Model: "m", Reason: Home, Attempt: 1}, *call.Decision)

	// An attempt that never reached its server was none.
	call.Unplaced()
	assert.Empty(t, call.Tried())
	assert.Equal(t, Decision{}, *call.Decision)
	call.Placed(endpoint(0), Home)
	call.Placed(endpoint(1), Replica)
	call.Unplaced()
	assert.Equal(t, []*Endpoint{endpoint(0)}, call.Tried())
	assert.Equal(t, Decision{Endpoint: "triton-0", Model: "m", Reason: Home, Attempt: 1}, *call.Decision)

	reasons := []Reason{Home, Replica, Overflow, LessLoaded, Tie, Turn}
	for i := 1; i < 6; i++ {
		call.Placed(endpoint(i), reasons[i])
		assert.Equal(t, i+1, call.Decision.Attempt)
	}
	require.Equal(t, []*Endpoint{endpoint(2), endpoint(3), endpoint(4), endpoint(5)}, call.Tried(), "the last four")
	assert.Equal(t, Decision{Endpoint: "triton-5", Model: "m", Reason: Turn, Attempt: 6}, *call.Decision)
	call.Unplaced()
	assert.Equal(t, Decision{Endpoint: "triton-4", Model: "m", Reason: Tie, Attempt: 5}, *call.Decision)

	call.Decision = nil // nobody asks
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		call.Placed(endpoint(0), Home)
		call.Unplaced()
	}))
}

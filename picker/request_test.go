package picker

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestRequestCost(t *testing.T) {
	for tokens, cost := range map[int]uint32{
		-5: DefaultTokens, 0: DefaultTokens, 1: 1, 300: 300, maxTokens: maxTokens, maxTokens + 1: maxTokens, 1 << 40: maxTokens,
	} {
		assert.Equal(t, cost, (&Request{Tokens: tokens}).Cost(), "%d tokens", tokens)
	}
}

func TestTypeString(t *testing.T) {
	assert.Equal(t, "auto", Type(0).String())
	assert.Equal(t, "inference", Inference.String())
	assert.Equal(t, "update", Update.String())
}

// Keys are part of the contract between clients: the published test vectors of xxhash64.
func TestKey(t *testing.T) {
	assert.Equal(t, uint64(0xef46db3751d8e999), Key(""))
	assert.Equal(t, uint64(0x44bc2cf5ad770999), Key("abc"))
	assert.NotEqual(t, Key("m"), Key("m:1"))
}

func TestRequestContext(t *testing.T) {
	ctx := context.Background()
	_, ok := FromContext(ctx)
	assert.False(t, ok)
	call, own, key := Find(ctx)
	assert.Nil(t, call)
	assert.Nil(t, own)
	assert.Zero(t, key)

	req := Request{ModelID: "abc", AffinityKey: "session", Type: Update, Tokens: 7}
	ctx = NewContext(ctx, req)
	got, ok := FromContext(ctx)
	assert.True(t, ok)
	assert.Equal(t, req, got)
	_, own, key = Find(ctx)
	assert.Equal(t, &req, own)
	assert.Equal(t, Key("abc"), key)

	inner := NewContext(ctx, Request{ModelID: "other"})
	got, _ = FromContext(inner)
	assert.Equal(t, Request{ModelID: "other"}, got, "the last one counts")
	got, _ = FromContext(ctx)
	assert.Equal(t, req, got)
	assert.Zero(t, testing.AllocsPerRun(100, func() { Find(inner) }))
}

// A Request and a Call are found whichever was put in first, through other values in between.
func TestRequestAndCallInOneContext(t *testing.T) {
	type other struct{}
	req := Request{ModelID: "abc"}
	ctx, call := NewCall(context.WithValue(NewContext(context.Background(), req), other{}, 1), "message")
	for _, ctx := range []context.Context{ctx, context.WithValue(ctx, other{}, 2)} {
		gotCall, gotReq, key := Find(ctx)
		assert.Same(t, call, gotCall)
		assert.Equal(t, &req, gotReq)
		assert.Equal(t, Key("abc"), key)
		assert.NotNil(t, ctx.Value(other{}))
	}
	later := NewContext(ctx, Request{ModelID: "later"})
	gotCall, gotReq, _ := Find(later)
	assert.Same(t, call, gotCall)
	assert.Equal(t, "later", gotReq.ModelID)
	inner, innerCall := NewCall(later, nil)
	gotCall, gotReq, _ = Find(inner)
	assert.Same(t, innerCall, gotCall, "the last record hides others")
	assert.Equal(t, "later", gotReq.ModelID)
}

package picker

import "context"

// Both a Request and a Call ride in a context under one key, so that a pick finds them with one look-up: whichever is put in later
// knows the other.
type contextKey struct{}

// requestContext is a context with a Request.
type requestContext struct {
	context.Context
	Request
	key  uint64 // Key(ModelID), worked out once for all calls of the context
	call *Call  // of the context around this one
}

// Value implements context.Context.
func (c *requestContext) Value(key any) any {
	if _, ok := key.(contextKey); ok {
		return c
	}
	return c.Context.Value(key)
}

// callContext is a context with the record of one call.
type callContext struct {
	context.Context
	Call
	request *requestContext // around this one
}

// Value implements context.Context.
func (c *callContext) Value(key any) any {
	if _, ok := key.(contextKey); ok {
		return c
	}
	return c.Context.Value(key)
}

func find(ctx context.Context) (*Call, *requestContext) {
	switch c := ctx.Value(contextKey{}).(type) {
	case *callContext:
		return &c.Call, c.request
	case *requestContext:
		return c.call, c
	}
	return nil, nil
}

// NewContext returns a copy of ctx that carries req. It overrides whatever the call's metadata or message say.
// The context may be used for any number of calls.
func NewContext(ctx context.Context, req Request) context.Context {
	call, _ := find(ctx)
	return &requestContext{Context: ctx, Request: req, key: Key(req.ModelID), call: call}
}

// FromContext returns the Request that NewContext put into ctx, and whether there is one.
func FromContext(ctx context.Context) (Request, bool) {
	if _, r := find(ctx); r != nil {
		return r.Request, true
	}
	return Request{}, false
}

// NewCall returns a copy of ctx that carries a fresh record for one RPC, and the record. msg may be nil.
func NewCall(ctx context.Context, msg any) (context.Context, *Call) {
	c := &callContext{Context: ctx}
	_, c.request = find(ctx)
	c.Message = msg
	return c, &c.Call
}

// CallFromContext returns the record that NewCall put into ctx, or nil.
func CallFromContext(ctx context.Context) *Call {
	call, _ := find(ctx)
	return call
}

// Find returns all that a pick needs from ctx: the record, or nil; and the Request that was put there with its Key, nil and 0
// if there is none. The Request is not to be changed.
func Find(ctx context.Context) (call *Call, own *Request, key uint64) {
	call, r := find(ctx)
	if r == nil {
		return call, nil, 0
	}
	return call, &r.Request, r.key
}

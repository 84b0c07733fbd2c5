package mlbalancer

import (
	"context"

	"google.golang.org/grpc"

	"github.com/mlbalancer/mlbalancer/picker"
)

// UnaryClientInterceptor returns the interceptor that shows a call's message to the policy. It reads nothing itself and
// costs one allocation: what is read is up to the config in force, which the policy alone knows. On a channel with
// another policy it does nothing.
//
// It is part of DialOptions; it is here for those who put their options together themselves.
func UnaryClientInterceptor() grpc.UnaryClientInterceptor { return interceptUnary }

func interceptUnary(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	ctx, _ = withCall(ctx, req, opts)
	return invoke(ctx, method, req, reply, cc, opts...)
}

// repeating returns the interceptor that puts the record into a call's context and has repeat make the attempts: one link of the chain, since
// each costs an allocation.
func repeating(repeat grpc.UnaryClientInterceptor) grpc.UnaryClientInterceptor {
	return func(
		ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		ctx, _ = withCall(ctx, req, opts)
		return repeat(ctx, method, req, reply, cc, invoke, opts...)
	}
}

// withCall puts a record of one call into ctx. A record that is there already belongs to another one, or to an
// interceptor of ours further out that saw the same call, and is hidden; the one exception is that of a read-out, which
// is answered in place of a call.
func withCall(ctx context.Context, msg any, opts []grpc.CallOption) (context.Context, *picker.Call) {
	if c := picker.CallFromContext(ctx); c != nil && c.Inspect != nil {
		return ctx, c
	}
	ctx, call := picker.NewCall(ctx, msg)
	for _, opt := range opts {
		if d, ok := opt.(decisionOption); ok && d.into != nil {
			*d.into = picker.Decision{}
			call.Decision = d.into
		}
	}
	return ctx, call
}

// WithDecision returns a call option that makes the policy note where it sends the call, and why: *d is reset when the
// call starts and filled in by each attempt that is placed. It may be read once the call has returned; of a stream,
// once RecvMsg or Header has. A d that is nil asks for nothing. Without the interceptors of this package, or under
// another policy, *d stays as it is or is all zero.
func WithDecision(d *picker.Decision) grpc.CallOption { return decisionOption{into: d} }

type decisionOption struct {
	grpc.EmptyCallOption
	into *picker.Decision
}

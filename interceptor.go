package mlbalancer

import (
	"context"

	"google.golang.org/grpc"

	"github.com/mlbalancer/mlbalancer/picker"
)

// UnaryClientInterceptor returns the interceptor that shows a call's message to the policy. It reads nothing for it and
// costs one allocation: what is read is up to the config in force, which the policy alone knows. On a channel with
// another policy it does nothing.
//
// Sequences are the exception. A ModelInfer request with Triton's parameter sequence_id goes to the server that the sequence's
// first request went to, and nowhere else, since that server alone knows what came before: until a request with sequence_end
// is answered, or nothing is heard of the sequence for 10 minutes. A request with sequence_start, or the first of a sequence
// that is not known, is placed like any other. While the server is not connected or its breaker is open, calls fail with
// UNAVAILABLE and a text that names the sequence and the server; a call that waits for ready waits for that server, unless it
// has left the channel's endpoints. The sequences of a model are its own. No retry goes to another server. The interceptor
// remembers the 65,536 that were used last, in at most 40 MiB. Streams need none of this: all requests of one stream go to one
// server.
//
// It is part of DialOptions; it is here for those who put their options together themselves. All calls of a sequence must go
// through the same interceptor.
func UnaryClientInterceptor() grpc.UnaryClientInterceptor { return recording(nil) }

// recording returns the interceptor that puts the record into a call's context, holds sequences together, and has repeat make
// the attempts, or makes one if that is nil: one link of the chain, since each costs an allocation.
func recording(repeat grpc.UnaryClientInterceptor) grpc.UnaryClientInterceptor {
	held := newSequences(maxSequences)
	return func(
		ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) (err error) {
		ctx, call := withCall(ctx, req, opts)
		sequence, last := held.join(call, cc, method, req)
		if repeat != nil {
			err = repeat(ctx, method, req, reply, cc, invoke, opts...)
		} else {
			err = invoke(ctx, method, req, reply, cc, opts...)
		}
		if sequence != nil {
			held.leave(sequence, last && answered(call, err), monotonic())
		}
		return err
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

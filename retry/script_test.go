package retry

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer/internal/oip"
	"github.com/mlbalancer/mlbalancer/picker"
)

const infer = "/inference.GRPCInferenceService/ModelInfer"

// answer is how one attempt goes.
type answer struct {
	err      error
	outcome  picker.Outcome
	pushback time.Duration
	unplaced bool          // no endpoint takes it
	mute     bool          // the policy judges nothing
	does     func(attempt) // what else happens
}

// attempt is what an interceptor passed on.
type attempt struct {
	ctx   context.Context
	fresh bool
	req   any
	reply any
	opts  []grpc.CallOption
}

// script is a channel with its policy and servers: it plays answers, one an attempt. An attempt too many fails with errTooMany.
type script struct {
	method   string
	req      any
	reply    any
	opts     []grpc.CallOption
	request  picker.Request
	answers  []answer
	attempts []attempt
}

var errTooMany = status.Error(codes.Unavailable, "no answer left in the script")

func play(answers ...answer) *script {
	return &script{method: infer, req: &oip.ModelInferRequest{ModelName: "m"}, reply: &oip.ModelInferResponse{}, answers: answers}
}

// call runs one call through the interceptor.
func (s *script) call(ctx context.Context, intercept grpc.UnaryClientInterceptor) error {
	ctx, _ = picker.NewCall(ctx, s.req)
	return intercept(ctx, s.method, s.req, s.reply, nil, s.invoke, s.opts...)
}

func (s *script) invoke(ctx context.Context, _ string, req, reply any, _ *grpc.ClientConn, opts ...grpc.CallOption) error {
	call := picker.CallFromContext(ctx)
	a := attempt{ctx: ctx, req: req, reply: reply, opts: opts}
	if call != nil {
		a.fresh = call.Fresh
	}
	n := len(s.attempts)
	s.attempts = append(s.attempts, a)
	if n >= len(s.answers) {
		return errTooMany
	}
	next := s.answers[n]
	if next.does != nil {
		next.does(a)
	}
	if call != nil && !next.unplaced {
		call.Resolve(&s.request, 0)
		call.Placed(picker.NewEndpoint(fmt.Sprint("e", n)), picker.Only)
		if !next.mute {
			call.Ended(next.outcome, next.pushback)
		}
	}
	return next.err
}

func fails(o picker.Outcome, code codes.Code, text string) answer {
	return answer{err: status.Error(code, text), outcome: o}
}

func ok() answer { return answer{outcome: picker.Success} }

// refused is an attempt for which no endpoint is left.
func refused() answer {
	return answer{err: status.Error(codes.Unavailable, "nothing untried is left"), unplaced: true}
}

package mlbalancer_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/mlbalancer/mlbalancer"
	"github.com/mlbalancer/mlbalancer/balancer"
	"github.com/mlbalancer/mlbalancer/picker"
)

// infer calls ModelInfer and returns the server that answered.
func infer(t *testing.T, ctx context.Context, cc *grpc.ClientConn, model string, opts ...grpc.CallOption) string {
	t.Helper()
	reply := &wrapperspb.StringValue{}
	require.NoError(t, cc.Invoke(ctx, modelInfer, text(model), reply, opts...))
	return serverOf(reply)
}

// exchange opens a stream, sends one message and returns the server that answered.
func exchange(
	t *testing.T, ctx context.Context, cc *grpc.ClientConn, desc *grpc.StreamDesc, method, msg string, opts ...grpc.CallOption,
) string {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := cc.NewStream(ctx, desc, method, opts...)
	require.NoError(t, err)
	require.NoError(t, stream.SendMsg(text(msg)))
	reply := &wrapperspb.StringValue{}
	require.NoError(t, stream.RecvMsg(reply))
	return serverOf(reply)
}

// ready waits until all n servers are connected, so that each model is served at home.
func ready(t *testing.T, cc *grpc.ClientConn, n int) {
	t.Helper()
	cc.Connect()
	ctx := deadline(t)
	require.Eventually(t, func() bool {
		up := 0
		if st, err := balancer.Snapshot(ctx, cc); err == nil {
			for _, e := range st.Endpoints {
				if e.Status == "ready" {
					up++
				}
			}
		}
		return up == n
	}, patience, time.Millisecond)
}

// The message of a unary call and the first one of a stream name the model, and the model's home serves both.
func TestMessageChoosesTheServer(t *testing.T) {
	const n = 4
	cc := serve(t, n).client(t)
	ready(t, cc, n)
	used := map[string]bool{}
	for i := range 16 {
		model := fmt.Sprintf("model-%d", i)
		var d picker.Decision
		home := infer(t, deadline(t), cc, model, mlbalancer.WithDecision(&d))
		want := picker.Decision{Endpoint: home, Model: model, Reason: picker.Home, Attempt: 1}
		require.Equal(t, want, d)
		used[home] = true

		assert.Equal(t, home, exchange(t, deadline(t), cc, bidi, modelStreamInfer, model, mlbalancer.WithDecision(&d)))
		assert.Equal(t, want, d)
		assert.Equal(t, home, exchange(t, deadline(t), cc, serverStream, generateStream, model, mlbalancer.WithDecision(&d)))
		assert.Equal(t, want, d)
	}
	assert.Greater(t, len(used), 1, "16 models, one home")
}

func TestModelFieldsOfTheConfig(t *testing.T) {
	for _, pattern := range []string{plainBidi, "/test.Plain/*"} {
		cc := serve(t, 1).client(t)
		var d picker.Decision
		exchange(t, deadline(t), cc, bidi, plainBidi, "m", mlbalancer.WithDecision(&d))
		require.Equal(t, "", d.Model, "unknown method")

		c := &creations{}
		config := &balancer.Config{Request: balancer.RequestConfig{ModelFields: map[string]string{pattern: "1"}}}
		cc = serve(t, 1).watched(t, c, mlbalancer.WithConfig(config))
		exchange(t, deadline(t), cc, bidi, plainBidi, "m", mlbalancer.WithDecision(&d))
		assert.Equal(t, "m", d.Model, pattern)

		before := c.count()
		ctx, cancel := context.WithCancel(deadline(t))
		for method, more := range map[string]int{plainBidi: 0, "/test.Other/Bidi": 1} {
			_, err := cc.NewStream(ctx, bidi, method)
			require.NoError(t, err)
			assert.Equal(t, before+more, c.count(), "%s with %s", method, pattern)
			before = c.count()
		}
		cancel()
	}
}

func TestBadConfigFailsNewClient(t *testing.T) {
	config := &balancer.Config{Request: balancer.RequestConfig{ModelFields: map[string]string{plainBidi: "0"}}}
	opts := append(mlbalancer.DialOptions(mlbalancer.WithConfig(config)), grpc.WithTransportCredentials(insecure.NewCredentials()))
	_, err := grpc.NewClient("mlb-static:///a:1", opts...)
	assert.ErrorContains(t, err, "modelFields")
	assert.ErrorContains(t, err, `"0"`)
}

func TestNilConfigMeansDefaults(t *testing.T) {
	cc := serve(t, 1).clientOf(t, "mlb-static:///s0", mlbalancer.DialOptions(mlbalancer.WithConfig(nil))...)
	assert.Equal(t, "s0", infer(t, deadline(t), cc, "m"))
}

// Passed last, ours runs within the application's interceptors and within the single one; passed first, around those of
// the chain.
func TestOrderOfInterceptors(t *testing.T) {
	var saw []string
	note := func(name string) grpc.UnaryClientInterceptor {
		return func(
			ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
		) error {
			if picker.CallFromContext(ctx) == nil {
				name += " outside"
			}
			saw = append(saw, name)
			return invoke(ctx, method, req, reply, cc, opts...)
		}
	}
	s := serve(t, 1)
	own := []grpc.DialOption{grpc.WithUnaryInterceptor(note("single")), grpc.WithChainUnaryInterceptor(note("chained"))}

	infer(t, deadline(t), s.client(t, own...), "m")
	assert.Equal(t, []string{"single outside", "chained outside"}, saw)
	saw = nil
	own = []grpc.DialOption{grpc.WithUnaryInterceptor(note("single")), grpc.WithChainUnaryInterceptor(note("chained"))}
	infer(t, deadline(t), s.clientOf(t, s.target, append(mlbalancer.DialOptions(), own...)...), "m")
	assert.Equal(t, []string{"single outside", "chained"}, saw)
}

// What an interceptor of the application adds counts: metadata that it sets is there when the call is placed.
func TestMetadataOfOuterInterceptor(t *testing.T) {
	name := func(
		ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		return invoke(metadata.AppendToOutgoingContext(ctx, "x-model-id", "from-metadata"), method, req, reply, cc, opts...)
	}
	cc := serve(t, 1).client(t, grpc.WithChainUnaryInterceptor(name))
	var d picker.Decision
	infer(t, deadline(t), cc, "from-message", mlbalancer.WithDecision(&d))
	assert.Equal(t, "from-metadata", d.Model)
}

func TestOptionsTwice(t *testing.T) {
	s := serve(t, 1)
	cc := s.client(t, mlbalancer.DialOptions()...)
	var d picker.Decision
	want := picker.Decision{Endpoint: "s0", Model: "m", Reason: picker.Home, Attempt: 1}
	infer(t, deadline(t), cc, "m", mlbalancer.WithDecision(&d))
	assert.Equal(t, want, d)
	exchange(t, deadline(t), cc, bidi, modelStreamInfer, "m", mlbalancer.WithDecision(&d))
	assert.Equal(t, want, d)

	st, err := balancer.Snapshot(deadline(t), cc)
	require.NoError(t, err, "a read-out gets through both")
	assert.Len(t, st.Endpoints, 1)
}

// A call made within another one, by an interceptor that stands within ours and passes its ctx on, is a call of its own.
func TestCallWithinACall(t *testing.T) {
	var inner picker.Decision
	nested := func(
		ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		if method == modelInfer {
			err := cc.Invoke(ctx, "/fmaas.GenerationService/Tokenize", text("tokenizer"), text(""), mlbalancer.WithDecision(&inner))
			if err != nil {
				return err
			}
		}
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	s := serve(t, 1)
	cc := s.clientOf(t, s.target, append(mlbalancer.DialOptions(), grpc.WithChainUnaryInterceptor(nested))...)
	var outer picker.Decision
	infer(t, deadline(t), cc, "m", mlbalancer.WithDecision(&outer))
	assert.Equal(t, picker.Decision{Endpoint: "s0", Model: "m", Reason: picker.Home, Attempt: 1}, outer)
	assert.Equal(t, picker.Decision{Endpoint: "s0", Model: "tokenizer", Reason: picker.Home, Attempt: 1}, inner)
}

// An interceptor within ours that runs attempts at once gives each a record of its own, which is the one that counts.
func TestRecordsOfAnInnerInterceptor(t *testing.T) {
	var first, second picker.Decision
	atOnce := func(
		ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		var wg sync.WaitGroup
		for _, d := range []*picker.Decision{&first, &second} {
			wg.Go(func() {
				ctx, call := picker.NewCall(ctx, req)
				call.Decision = d
				assert.NoError(t, invoke(ctx, method, req, text(""), cc, opts...))
			})
		}
		wg.Wait()
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	s := serve(t, 1)
	cc := s.clientOf(t, s.target, append(mlbalancer.DialOptions(), grpc.WithChainUnaryInterceptor(atOnce))...)
	var outer picker.Decision
	infer(t, deadline(t), cc, "m", mlbalancer.WithDecision(&outer))
	want := picker.Decision{Endpoint: "s0", Model: "m", Reason: picker.Home, Attempt: 1}
	assert.Equal(t, []picker.Decision{want, want, want}, []picker.Decision{first, second, outer})
}

// Attempts within ours share a record and avoid each other's servers; an attempt of an interceptor around ours starts anew.
func TestAttempts(t *testing.T) {
	twice := func(
		ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		if err := invoke(ctx, method, req, reply, cc, opts...); err != nil {
			return err
		}
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	s := serve(t, 2)
	within := s.clientOf(t, s.target, append(mlbalancer.DialOptions(), grpc.WithChainUnaryInterceptor(twice))...)
	ready(t, within, 2)
	var d picker.Decision
	infer(t, deadline(t), within, "m", mlbalancer.WithDecision(&d))
	assert.Equal(t, 2, d.Attempt)
	assert.Equal(t, picker.Replica, d.Reason)

	around := s.client(t, grpc.WithChainUnaryInterceptor(twice))
	ready(t, around, 2)
	infer(t, deadline(t), around, "m", mlbalancer.WithDecision(&d))
	assert.Equal(t, 1, d.Attempt)
	assert.Equal(t, picker.Home, d.Reason)
}

func TestDecision(t *testing.T) {
	s := serve(t, 1)
	cc := s.client(t)
	infer(t, deadline(t), cc, "m", mlbalancer.WithDecision(nil))

	d := picker.Decision{Endpoint: "old", Model: "old", Attempt: 7}
	err := s.clientOf(t, "mlb-static:///nobody", mlbalancer.DialOptions()...).
		Invoke(deadline(t), modelInfer, text("m"), text(""), mlbalancer.WithDecision(&d))
	require.Equal(t, codes.Unavailable, status.Code(err))
	assert.Equal(t, picker.Decision{}, d, "never placed")

	d = picker.Decision{Endpoint: "old"}
	other := s.clientOf(t, s.target)
	infer(t, deadline(t), other, "m", mlbalancer.WithDecision(&d))
	assert.Equal(t, "old", d.Endpoint, "nobody is there to fill it in")
}

func TestUnaryInterceptorAllocatesOnce(t *testing.T) {
	intercept := mlbalancer.UnaryClientInterceptor()
	invoke := func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return nil }
	var req, reply any = text("m"), text("")
	var d picker.Decision
	for name, opts := range map[string][]grpc.CallOption{
		"plain": nil, "with options": {grpc.WaitForReady(true), mlbalancer.WithDecision(&d)},
	} {
		assert.EqualValues(t, 1, testing.AllocsPerRun(100, func() {
			_ = intercept(t.Context(), modelInfer, req, reply, nil, invoke, opts...)
		}), name)
	}
}

// The interceptors do no harm under a policy that knows nothing of them.
func TestUnderAnotherPolicy(t *testing.T) {
	s := serve(t, 2)
	cc := s.client(t)
	other := s.clientOf(t, s.target, append(mlbalancer.DialOptions(),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`))...)
	var d picker.Decision
	for range 2 {
		infer(t, deadline(t), other, "m", mlbalancer.WithDecision(&d))
		exchange(t, deadline(t), other, bidi, modelStreamInfer, "m", mlbalancer.WithDecision(&d))
	}
	assert.Equal(t, picker.Decision{}, d)
	infer(t, deadline(t), cc, "m")
}

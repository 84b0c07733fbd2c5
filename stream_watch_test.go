package mlbalancer_test

import (
	"context"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/mlbalancer/mlbalancer"
	"github.com/mlbalancer/mlbalancer/balancer"
	"github.com/mlbalancer/mlbalancer/internal/memconn"
	"github.com/mlbalancer/mlbalancer/internal/oip"
	"github.com/mlbalancer/mlbalancer/picker"
)

// kind is what a model server sends on ModelStreamInfer.
type kind func(model, text string) proto.Message

// triton wraps responses and errors.
func triton(model, text string) proto.Message {
	r := &oip.ModelInferResponse{ModelName: model, Id: "7"}
	if text == "" {
		r.ModelVersion, r.RawOutputContents = "1", [][]byte{[]byte("tensor")}
	}
	return &oip.ModelStreamInferResponse{ErrorMessage: text, InferResponse: r}
}

// mlserver sends responses alone. Where there is an error, the model has an odd name.
func mlserver(model, text string) proto.Message {
	return &oip.ModelInferResponse{ModelName: model + text, ModelVersion: "1", Id: "7", RawOutputContents: [][]byte{[]byte("tensor")}}
}

// models starts a server that answers each request after delay. The id of a request says what with: "" an answer, anything else an error of
// that text; "end" and the name of a code ends the stream with it.
func models(t testing.TB, k kind, delay time.Duration) *servers {
	lis := memconn.Listen(1 << 16)
	srv := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		if method, _ := grpc.MethodFromServerStream(stream); asksHealth(method) {
			return status.Error(codes.Unimplemented, "the servers say nothing of their health")
		}
		for {
			var req oip.ModelInferRequest
			if err := stream.RecvMsg(&req); err != nil {
				return nil // the client is done, or gone
			}
			var code codes.Code
			if n, _ := fmt.Sscanf(req.Id, "end %d", &code); n == 1 {
				return status.Error(code, "as asked")
			}
			timer := time.NewTimer(delay)
			<-timer.C
			if err := stream.SendMsg(k(req.ModelName, req.Id)); err != nil {
				return err
			}
		}
	}))
	done := make(chan error, 1)
	go func() { done <- srv.Serve(lis) }()
	t.Cleanup(func() { srv.Stop(); <-done })
	return &servers{target: "mlb-static:///s0", listeners: map[string]*memconn.Listener{"s0": lis}}
}

// conversation is one stream of a method.
type conversation struct {
	t      testing.TB
	cc     *grpc.ClientConn
	stream grpc.ClientStream
	reply  func() any // makes what a response is read into
}

func converse(t testing.TB, ctx context.Context, cc *grpc.ClientConn, method string, reply func() any, opts ...grpc.CallOption) *conversation {
	stream, err := cc.NewStream(ctx, bidi, method, opts...)
	require.NoError(t, err)
	return &conversation{t, cc, stream, reply}
}

// say sends a request and returns the response.
func (c *conversation) say(model, id string) (any, error) {
	require.NoError(c.t, c.stream.SendMsg(&oip.ModelInferRequest{ModelName: model, Id: id}))
	m := c.reply()
	return m, c.stream.RecvMsg(m)
}

func (c *conversation) answer(model, id string) any {
	m, err := c.say(model, id)
	require.NoError(c.t, err)
	return m
}

// end ends the stream well.
func (c *conversation) end() {
	require.NoError(c.t, c.stream.CloseSend())
	require.Equal(c.t, io.EOF, c.stream.RecvMsg(c.reply()))
}

// state returns what the policy knows of its only endpoint.
func state(t testing.TB, cc *grpc.ClientConn) balancer.EndpointState {
	s, err := balancer.Snapshot(context.Background(), cc)
	require.NoError(t, err)
	require.Len(t, s.Endpoints, 1)
	return s.Endpoints[0]
}

// breakerOf returns the state of the breaker of a model; empty while there is nothing against it.
func breakerOf(t testing.TB, cc *grpc.ClientConn, model string) string {
	for _, m := range state(t, cc).Models {
		if m.Name == model && m.Breaker != nil {
			return m.Breaker.State
		}
	}
	return ""
}

func wrapper() any  { return &oip.ModelStreamInferResponse{} }
func response() any { return &oip.ModelInferResponse{} }
func encoded() any  { return new([]byte) }

// encodedReplies leaves responses as they come.
type encodedReplies struct{}

func (encodedReplies) Name() string                  { return "proto" }
func (encodedReplies) Marshal(m any) ([]byte, error) { return proto.Marshal(m.(proto.Message)) }
func (encodedReplies) Unmarshal(b []byte, m any) error {
	*m.(*[]byte) = append([]byte(nil), b...)
	return nil
}

var _ encoding.Codec = encodedReplies{}

// Errors in the responses of a stream that ends well open the model's breaker, in Go messages as in bytes.
func TestStreamErrorsInBand(t *testing.T) {
	for name, tc := range map[string]struct {
		kind  kind
		reply func() any
		opts  []grpc.CallOption
		want  string
	}{
		"Triton":            {triton, wrapper, nil, "open"},
		"Triton, encoded":   {triton, encoded, []grpc.CallOption{grpc.ForceCodec(encodedReplies{})}, "open"},
		"MLServer":          {mlserver, response, nil, ""},
		"MLServer, encoded": {mlserver, encoded, []grpc.CallOption{grpc.ForceCodec(encodedReplies{})}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cc := models(t, tc.kind, 0).client(t)
			c := converse(t, deadline(t), cc, modelStreamInfer, tc.reply, tc.opts...)
			for range 5 {
				got := c.answer("m", "boom")
				if b, ok := got.(*[]byte); ok {
					want, err := proto.Marshal(tc.kind("m", "boom"))
					require.NoError(t, err)
					assert.Equal(t, want, *b)
				} else {
					assert.True(t, proto.Equal(tc.kind("m", "boom"), got.(proto.Message)))
				}
				c.answer("n", "")
			}
			assert.Equal(t, tc.want, breakerOf(t, cc, "m"))
			assert.Empty(t, breakerOf(t, cc, "n"))
			c.end()
			e := state(t, cc)
			assert.Equal(t, "closed", e.Breaker.State)
			assert.Equal(t, 1, e.Breaker.Counts.Calls)
			assert.Zero(t, e.Breaker.Counts.Failures)
			assert.Zero(t, e.InFlight)
		})
	}
}

// What an error means is told by its text, and by what the config makes of it.
func TestStreamErrorsInBandByText(t *testing.T) {
	cc := models(t, triton, 0).client(t)
	c := converse(t, deadline(t), cc, modelStreamInfer, wrapper)
	for range 10 {
		c.answer("m", "unexpected shape for input 'i' for model 'm'")
		c.answer("n", "Exceeds maximum queue size")
	}
	assert.Empty(t, breakerOf(t, cc, "m"))
	assert.Empty(t, breakerOf(t, cc, "n"))
	assert.False(t, state(t, cc).Draining)
	c.answer("m", "Server exiting")
	assert.True(t, state(t, cc).Draining)
	c.end()

	config := balancer.DefaultConfig()
	config.Breaker.Codes = map[string]string{"INTERNAL": "caller-fault"}
	s := models(t, triton, 0)
	cc = s.clientOf(t, s.target, mlbalancer.DialOptions(mlbalancer.WithConfig(config))...)
	c = converse(t, deadline(t), cc, modelStreamInfer, wrapper)
	for range 10 {
		c.answer("m", "boom")
	}
	assert.Empty(t, breakerOf(t, cc, "m"))
	c.end()
}

// The first response is the latency, on any stream that infers, created at once or not; the rest of the stream is not.
func TestStreamLatencyIsTheFirstResponse(t *testing.T) {
	const first = 30 * time.Millisecond
	known := picker.NewContext(context.Background(), picker.Request{ModelID: "m"})
	for name, tc := range map[string]struct {
		ctx    context.Context
		method string
		want   time.Duration
	}{
		"deferred":        {context.Background(), modelStreamInfer, first},
		"not deferred":    {known, modelStreamInfer, first},
		"one answer":      {context.Background(), generateStream, first},
		"without a model": {context.Background(), "/vllm.grpc.engine.VllmEngine/Generate", first},
		"no inference":    {context.Background(), plainBidi, 0},
		"an update":       {context.Background(), "/vllm.grpc.engine.VllmEngine/Abort", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cc := models(t, triton, first).client(t)
				ctx, cancel := context.WithTimeout(tc.ctx, time.Hour)
				defer cancel()
				c := converse(t, ctx, cc, tc.method, wrapper)
				pause(time.Minute) // the caller takes its time
				c.answer("m", "")
				pause(time.Minute)
				c.answer("m", "")
				assert.Equal(t, 1, state(t, cc).InFlight)
				c.end()
				e := state(t, cc)
				assert.Equal(t, tc.want, e.Latency)
				assert.Zero(t, e.InFlight)
				if tc.ctx == known || tc.method == modelStreamInfer {
					assert.Equal(t, tc.want, e.Models[0].Service)
				}
			})
		})
	}
}

// pause lets the time of a bubble pass.
func pause(d time.Duration) { <-time.After(d) }

// The end of a stream says what it does of the endpoint, once.
func TestStreamEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		end             func(c *conversation, cancel func())
		calls, failures int
		model           string
	}{
		"well":                 {func(c *conversation, _ func()) { c.end() }, 1, 0, ""},
		"cancelled":            {func(c *conversation, cancel func()) { cancel(); c.say("m", "end 1") }, 0, 0, ""},
		"failed":               {func(c *conversation, _ func()) { c.say("m", fmt.Sprint("end ", int(codes.Unavailable))) }, 1, 1, ""},
		"by the model's fault": {func(c *conversation, _ func()) { c.say("m", fmt.Sprint("end ", int(codes.Internal))) }, 0, 0, "closed"},
		"by the caller's":      {func(c *conversation, _ func()) { c.say("m", fmt.Sprint("end ", int(codes.InvalidArgument))) }, 0, 0, ""},
	} {
		for _, method := range []string{modelStreamInfer, generateStream} {
			t.Run(name+method, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cc := models(t, triton, time.Millisecond).client(t)
					ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
					defer cancel()
					c := converse(t, ctx, cc, method, wrapper)
					for range 50 {
						c.answer("m", "")
					}
					assert.Zero(t, state(t, cc).Breaker.Counts.Calls, "a stream that goes on is no success")
					c.stream = quiet{c.stream}
					tc.end(c, cancel)
					synctest.Wait()
					e := state(t, cc)
					assert.Equal(t, tc.calls, e.Breaker.Counts.Calls)
					assert.Equal(t, tc.failures, e.Breaker.Counts.Failures)
					assert.Equal(t, tc.model, breakerOf(t, cc, "m"))
					assert.Zero(t, e.InFlight)
				})
			})
		}
	}
}

// quiet is a stream that may be cancelled: sending on it then is no failure of the test.
type quiet struct{ grpc.ClientStream }

func (q quiet) SendMsg(m any) error {
	if err := q.ClientStream.SendMsg(m); q.Context().Err() == nil {
		return err
	}
	return nil
}

// A fleet that only streams gets its endpoint back: the first response of a probe is what counts, however long it goes on.
func TestStreamProbesMayBeLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := balancer.DefaultConfig()
		config.Breaker.MaxEjectionPercent = 100
		config.Health.PanicThreshold = 0
		s := models(t, triton, time.Millisecond)
		cc := s.clientOf(t, s.target, mlbalancer.DialOptions(mlbalancer.WithConfig(config))...)
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		for range 5 {
			_, err := converse(t, ctx, cc, modelStreamInfer, wrapper).say("m", fmt.Sprint("end ", int(codes.Unavailable)))
			require.Equal(t, codes.Unavailable, status.Code(err))
		}
		require.Equal(t, "open", state(t, cc).Breaker.State)
		pause(2 * time.Second)
		for range 3 {
			var d picker.Decision
			c := converse(t, ctx, cc, modelStreamInfer, wrapper, mlbalancer.WithDecision(&d))
			c.answer("m", "")
			assert.Equal(t, picker.Probe, d.Reason)
			defer c.end()
		}
		pause(time.Minute)
		assert.Equal(t, "closed", state(t, cc).Breaker.State)
	})
}

// Under another policy nothing happens to a stream.
func TestStreamUnderAnotherPolicy(t *testing.T) {
	s := models(t, triton, 0)
	cc := s.clientOf(t, "passthrough:///s0", grpc.WithChainStreamInterceptor(mlbalancer.StreamClientInterceptor()))
	c := converse(t, deadline(t), cc, modelStreamInfer, wrapper)
	for range 10 {
		assert.True(t, proto.Equal(triton("m", "boom"), c.answer("m", "boom").(proto.Message)))
	}
	c.end()
}

// A server that speaks first, and callers that receive and send at once.
func TestStreamWatchedConcurrently(t *testing.T) {
	cc := models(t, triton, 0).client(t)
	ctx := metadata.AppendToOutgoingContext(deadline(t), "k", "v")
	for range 50 {
		c := converse(t, ctx, cc, modelStreamInfer, wrapper)
		const n = 20
		sent := make(chan error, 1)
		go func() {
			for i := range n {
				text := ""
				if i%3 == 0 {
					text = "boom"
				}
				if err := c.stream.SendMsg(&oip.ModelInferRequest{ModelName: "m", Id: text}); err != nil {
					sent <- err
					return
				}
			}
			sent <- c.stream.CloseSend()
		}()
		got := 0
		for err := error(nil); err == nil; got++ {
			err = c.stream.RecvMsg(wrapper())
		}
		assert.NoError(t, <-sent)
		assert.Equal(t, n, got-1)
	}
	assert.Zero(t, state(t, cc).InFlight)
}

package mlbalancer

import (
	"context"
	"io"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"

	"github.com/mlbalancer/mlbalancer/internal/methods"
	"github.com/mlbalancer/mlbalancer/picker"
)

// StreamClientInterceptor returns the interceptor that shows a stream's first message to the policy, which names the model, and its
// responses.
//
// A stream is placed when it is created, so the creation of some streams waits for that message: those of known methods
// whose first message names a model (such as ModelStreamInfer, StreamPredictions, GenerateStream and
// StreamingRecognize) and those of methods in the modelFields of WithConfig. All others are created at once and are
// placed without a model unless metadata or a Request in ctx names one; so are those whose ctx holds a Request with a
// model, since nothing remains to wait for. The modelFields of a config that only the resolver knows defer no stream.
//
// To the application a deferred stream is like any other, except for this:
//
//   - grpc.ClientConn.NewStream returns at once. The stream is created by the first SendMsg, by CloseSend (then it is
//     placed by load alone), or when ctx ends or the channel is closed.
//   - RecvMsg and Header wait for that. A goroutine that starts to receive before another one sends works.
//   - If the stream cannot be created, SendMsg returns io.EOF (or nil, as gRPC does where the client sends one message
//     only), and RecvMsg and Header return the error. CloseSend returns nil as ever.
//   - Context returns the ctx of the call until the stream is created, and Trailer returns nil.
//   - A timeout that the service config sets for the method starts when the stream is created.
//   - A grpc.PreparedMsg can be encoded for it only once it is created, so the first message cannot be one.
//
// All requests of a stream go to one server, and so do those of each sequence in it.
//
// The responses to streams that infer pass through as they are; the policy hears when the first came, which is the latency of the endpoint.
// On ModelStreamInfer each is a vote for the model that answered, and the errors that Triton sends in responses count as what their
// texts mean. The interceptor reads them from Go messages and from encoded ones (*[]byte); what a codec makes of them otherwise counts
// as an answer.
func StreamClientInterceptor(opts ...Option) grpc.StreamClientInterceptor {
	return streamInterceptor(newOptions(opts))
}

func streamInterceptor(o *options) grpc.StreamClientInterceptor {
	deferred := map[string]bool{} // "/service/Method", or "/service" for all of its methods
	for pattern := range o.config.Request.ModelFields {
		deferred[strings.TrimSuffix(pattern, "/*")] = true
	}
	return func(
		ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, create grpc.Streamer, opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		known, _ := methods.Lookup(method)
		named := known.Streaming || deferred[method] || deferred[method[:max(strings.LastIndexByte(method, '/'), 0)]]
		callCtx, call := withCall(ctx, nil, opts)
		call.Stream = true
		w := watch(call, known, named && known.Class != methods.Update, desc)
		if !named || !mustWait(ctx) {
			return w.around(create(callCtx, desc, cc, method, opts...))
		}
		return w.around(newDeferredStream(ctx, cc, desc, func(first any) (grpc.ClientStream, error) {
			call.Message = first
			return create(callCtx, desc, cc, method, opts...)
		}), nil)
	}
}

// mustWait reports whether the model of a stream is still unknown, and is worth waiting for.
func mustWait(ctx context.Context) bool {
	if ctx.Err() != nil {
		return false
	}
	req, _ := picker.FromContext(ctx)
	return req.ModelID == ""
}

// deferredStream is a stream that is created once its first message is there. It has no goroutine of its own: whoever
// brings the message, the end of ctx or the end of the channel, creates the stream.
type deferredStream struct {
	ctx  context.Context // of the call
	cc   *grpc.ClientConn
	desc *grpc.StreamDesc

	mu     sync.Mutex  // held while the stream is being created
	create creator     // nil once it was called
	ignore func() bool // stops watching ctx

	created context.Context // ends when the stream has been created, or has failed to be
	wake    context.CancelFunc
	stream  grpc.ClientStream // set before created ends
	err     error             // likewise, if there is no stream
}

// creator creates a stream whose first message is known, or nil if there is none.
type creator func(first any) (grpc.ClientStream, error)

func newDeferredStream(ctx context.Context, cc *grpc.ClientConn, desc *grpc.StreamDesc, create creator) *deferredStream {
	s := &deferredStream{ctx: ctx, cc: cc, desc: desc, create: create}
	s.created, s.wake = context.WithCancel(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	// gRPC ends a stream for good when it is created with a ctx that has ended: options of the call that wait for its
	// end hear of it.
	s.ignore = context.AfterFunc(ctx, func() { s.start(nil) })
	return s
}

// start creates the stream, unless that has been done.
func (s *deferredStream) start(first any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.create == nil {
		return
	}
	s.ignore()
	s.stream, s.err = s.create(first)
	s.create = nil
	s.wake()
}

// wait returns once the stream was created, and the error if it was not.
func (s *deferredStream) wait() error {
	for s.created.Err() == nil {
		state := s.cc.GetState()
		if state == connectivity.Shutdown {
			s.start(nil)
			break
		}
		s.cc.WaitForStateChange(s.created, state)
	}
	return s.err
}

// SendMsg implements grpc.ClientStream.
func (s *deferredStream) SendMsg(m any) error {
	if s.created.Err() == nil {
		s.start(m)
	}
	switch {
	case s.err == nil:
		return s.stream.SendMsg(m)
	case s.desc.ClientStreams:
		return io.EOF
	}
	return nil // generated code gives up on any error, and would never ask RecvMsg for the real one
}

// CloseSend implements grpc.ClientStream.
func (s *deferredStream) CloseSend() error {
	s.start(nil)
	if s.err != nil {
		return nil
	}
	return s.stream.CloseSend()
}

// RecvMsg implements grpc.ClientStream.
func (s *deferredStream) RecvMsg(m any) error {
	if err := s.wait(); err != nil {
		return err
	}
	return s.stream.RecvMsg(m)
}

// Header implements grpc.ClientStream.
func (s *deferredStream) Header() (metadata.MD, error) {
	if err := s.wait(); err != nil {
		return nil, err
	}
	return s.stream.Header()
}

// Trailer implements grpc.ClientStream.
func (s *deferredStream) Trailer() metadata.MD {
	if s.created.Err() == nil || s.err != nil {
		return nil
	}
	return s.stream.Trailer()
}

// Context implements grpc.ClientStream.
func (s *deferredStream) Context() context.Context {
	if s.created.Err() == nil || s.err != nil {
		return s.ctx
	}
	return s.stream.Context()
}

package retry

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/mlbalancer/mlbalancer/internal/memconn"
	"github.com/mlbalancer/mlbalancer/internal/oip"
	"github.com/mlbalancer/mlbalancer/picker"
)

// serve is what a server does with an inference call. The stream lets it answer and fail in one call.
type serve func(stream grpc.ServerStream) error

// server is a gRPC server that counts its calls.
type server struct {
	*grpc.Server
	listener *memconn.Listener
	calls    atomic.Int64
}

func newServer(t *testing.T, name string, does serve) *server {
	s := &server{listener: memconn.Listen(1 << 16)}
	s.Server = grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		s.calls.Add(1)
		stream.SetTrailer(metadata.Pairs("from", name))
		if err := stream.RecvMsg(&oip.ModelInferRequest{}); err != nil {
			return err
		}
		return does(stream)
	}))
	go func() { _ = s.Serve(s.listener) }()
	t.Cleanup(s.Stop)
	return s
}

// fleet is a channel with servers a, b, c ..., which calls go to in that order.
type fleet struct {
	*grpc.ClientConn
	servers []*server
	stats   Stats
}

func newFleet(t *testing.T, does ...serve) *fleet {
	t.Helper()
	f := &fleet{}
	byName := map[string]*server{}
	var addrs []resolver.Address
	all := attributes.New(gate{}, &gate{addresses: len(does)})
	for i, d := range does {
		name := string(rune('a' + i))
		byName[name] = newServer(t, name, d)
		f.servers = append(f.servers, byName[name])
		addrs = append(addrs, resolver.Address{Addr: name, Attributes: all})
	}
	names := manual.NewBuilderWithScheme("fleet")
	names.InitialState(resolver.State{Addresses: addrs})
	record := func(
		ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		ctx, _ = picker.NewCall(ctx, req)
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	f.ClientConn = must(grpc.NewClient("fleet:///x", grpc.WithResolvers(names), grpc.WithDisableRetry(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return byName[addr].listener.DialContext(ctx)
		}),
		grpc.WithDefaultServiceConfig(fmt.Sprintf(`{"loadBalancingConfig": [{%q: {}}]}`, inOrder)),
		grpc.WithChainUnaryInterceptor(record, UnaryClientInterceptor(WithStats(&f.stats)))))
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// infer makes one call with a deadline of ten seconds, and returns which server answered.
func (f *fleet) infer(ctx context.Context, opts ...grpc.CallOption) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	resp, err := oip.NewGRPCInferenceServiceClient(f).ModelInfer(ctx, &oip.ModelInferRequest{ModelName: "m"}, opts...)
	return resp.GetModelName(), err
}

func (f *fleet) calls() (n []int64) {
	for _, s := range f.servers {
		n = append(n, s.calls.Load())
	}
	return n
}

func answers(name string) serve {
	return func(stream grpc.ServerStream) error {
		if err := stream.SendHeader(metadata.Pairs("from", name)); err != nil {
			return err
		}
		return stream.SendMsg(&oip.ModelInferResponse{ModelName: name})
	}
}

func says(code codes.Code, text string) serve {
	return func(grpc.ServerStream) error { return status.Error(code, text) }
}

// hangs blocks until the call is over.
func hangs(stream grpc.ServerStream) error {
	<-stream.Context().Done()
	return stream.Context().Err()
}

func TestAnotherServerAnswers(t *testing.T) {
	for name, does := range map[string]serve{
		"drained":        says(codes.NotFound, "Request for unknown model: 'm' has no available versions"),
		"stopping":       says(codes.Unavailable, "Server is stopping, scheduler for model has stopped accepting new inference requests"),
		"broken":         says(codes.Internal, "Stub process 'm_0_0' is not healthy."),
		"loading":        says(codes.InvalidArgument, "Model m with version  is not ready yet."),
		"full":           says(codes.Unavailable, "Exceeds maximum queue size"),
		"cancels itself": says(codes.Canceled, ""),
		"fails halfway": func(stream grpc.ServerStream) error {
			if err := stream.SendMsg(&oip.ModelInferResponse{ModelName: "half", ModelVersion: "7"}); err != nil {
				return err
			}
			return status.Error(codes.Internal, "x")
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, does, answers("b"))
			var header, trailer metadata.MD
			var from peer.Peer
			finished := 0
			got, err := f.infer(ctx, grpc.Header(&header), grpc.Trailer(&trailer), grpc.Peer(&from),
				grpc.OnFinish(func(error) { finished++ }), grpc.WaitForReady(true))
			require.NoError(t, err)
			assert.Equal(t, "b", got)
			assert.Equal(t, []string{"b"}, header["from"])
			assert.Equal(t, []string{"b"}, trailer["from"])
			assert.NotNil(t, from.Addr)
			assert.Equal(t, 1, finished)
			assert.Equal(t, []int64{1, 1}, f.calls())
		})
	}
}

// A call that no server can answer ends with what the last one said, at once, also if it waits for ready.
func TestNobodyAnswers(t *testing.T) {
	f := newFleet(t,
		says(codes.Unavailable, "Server exiting"),
		func(stream grpc.ServerStream) error {
			if err := stream.SendMsg(&oip.ModelInferResponse{ModelName: "half"}); err != nil {
				return err
			}
			return status.Error(codes.NotFound, "Request for unknown model: 'm' is not found")
		})
	for _, wait := range []bool{false, true} {
		var trailer metadata.MD
		reply := &oip.ModelInferResponse{}
		err := f.Invoke(ctx, infer, &oip.ModelInferRequest{}, reply, grpc.WaitForReady(wait), grpc.Trailer(&trailer))
		assert.Equal(t, codes.NotFound, status.Code(err))
		assert.Equal(t, "Request for unknown model: 'm' is not found", status.Convert(err).Message())
		assert.Equal(t, []string{"b"}, trailer["from"])
		assert.Empty(t, reply.GetModelName())
	}
	assert.Equal(t, []int64{2, 2}, f.calls())
	assert.EqualValues(t, 2, f.stats.Sent.Load())
	assert.EqualValues(t, 2, f.stats.Exhausted.Load())
}

func TestThreeServersAreAsked(t *testing.T) {
	missing := says(codes.NotFound, "Model m with version  not found")
	f := newFleet(t, missing, missing, missing, answers("d"))
	_, err := f.infer(ctx)
	assert.Equal(t, codes.NotFound, status.Code(err))
	assert.Equal(t, []int64{1, 1, 1, 0}, f.calls())
}

// What the caller did itself, or did wrong, reaches one server only.
func TestCallersFaults(t *testing.T) {
	for name, tc := range map[string]struct {
		does serve
		opts []grpc.CallOption
		code codes.Code
	}{
		"bad input":       {says(codes.InvalidArgument, "Invalid datatype"), nil, codes.InvalidArgument},
		"not its model":   {says(codes.NotFound, "no such user"), nil, codes.NotFound},
		"restricted":      {says(codes.Unavailable, "This protocol is restricted, expecting header 'x'"), nil, codes.Unavailable},
		"answer too long": {answers("a"), []grpc.CallOption{grpc.MaxCallRecvMsgSize(1)}, codes.ResourceExhausted},
		"no such method":  {says(codes.Unimplemented, ""), nil, codes.Unimplemented},
		"server refuses it for its size": {
			says(codes.ResourceExhausted, "SERVER: Received message larger than max (5000000 vs. 4194304)"), nil, codes.ResourceExhausted},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, tc.does, answers("b"))
			_, err := f.infer(ctx, tc.opts...)
			assert.Equal(t, tc.code, status.Code(err))
			assert.Equal(t, []int64{1, 0}, f.calls())
		})
	}
}

func TestCallIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(ctx)
	f := newFleet(t, func(stream grpc.ServerStream) error { cancel(); return hangs(stream) }, answers("b"))
	_, err := f.infer(ctx)
	assert.Equal(t, codes.Canceled, status.Code(err))
	assert.Equal(t, []int64{1, 0}, f.calls())
}

func TestDeadlineIsOver(t *testing.T) {
	first := true
	f := newFleet(t, func(stream grpc.ServerStream) error {
		if first {
			first = false
			return answers("a")(stream)
		}
		return hangs(stream)
	}, answers("b"))
	_, err := f.infer(ctx) // waits until all are connected
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err = f.infer(ctx)
	assert.Equal(t, codes.DeadlineExceeded, status.Code(err))
	assert.Equal(t, []int64{2, 0}, f.calls())
}

func TestChannelIsClosed(t *testing.T) {
	arrived := make(chan struct{})
	f := newFleet(t, func(stream grpc.ServerStream) error { close(arrived); return hangs(stream) }, answers("b"))
	go func() { <-arrived; _ = f.Close() }()
	_, err := f.infer(ctx)
	assert.Equal(t, codes.Canceled, status.Code(err))
	assert.Equal(t, []int64{1, 0}, f.calls())
	assert.Zero(t, f.stats.Sent.Load()+f.stats.Exhausted.Load())
}

func TestServerDies(t *testing.T) {
	var f *fleet
	f = newFleet(t, func(stream grpc.ServerStream) error { go f.servers[0].Stop(); return hangs(stream) }, answers("b"))
	got, err := f.infer(ctx)
	require.NoError(t, err)
	assert.Equal(t, "b", got)
}

func TestServersPushBack(t *testing.T) {
	details, err := status.New(codes.ResourceExhausted, "x").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(30 * time.Millisecond)})
	require.NoError(t, err)
	trailer := func(ms string) serve {
		return func(stream grpc.ServerStream) error {
			stream.SetTrailer(metadata.Pairs("grpc-retry-pushback-ms", ms))
			return status.Error(codes.Unavailable, "Exceeds maximum queue size")
		}
	}
	for name, tc := range map[string]struct {
		does serve
		wait time.Duration
		code codes.Code
	}{
		"trailer":           {trailer("30"), 30 * time.Millisecond, codes.OK},
		"details":           {func(grpc.ServerStream) error { return details.Err() }, 30 * time.Millisecond, codes.OK},
		"never":             {trailer("-1"), 0, codes.Unavailable},
		"past the deadline": {trailer("10001"), 0, codes.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, tc.does, answers("b"))
			began := time.Now()
			_, err := f.infer(ctx)
			assert.Equal(t, tc.code, status.Code(err))
			assert.GreaterOrEqual(t, time.Since(began), tc.wait)
			assert.Less(t, time.Since(began), 5*time.Second)
		})
	}
}

// Calls at the same time do not get in each other's way.
func TestManyCalls(t *testing.T) {
	f := newFleet(t, says(codes.Unavailable, "Server exiting"), answers("b"))
	errs := make(chan error)
	const callers, each = 8, 10 // within the budget's floor
	for range callers {
		go func() {
			for range each {
				got, err := f.infer(ctx)
				if err == nil && got != "b" {
					err = fmt.Errorf("%q answered", got)
				}
				errs <- err
			}
		}()
	}
	for range callers * each {
		assert.NoError(t, <-errs)
	}
	assert.EqualValues(t, callers*each, f.stats.Sent.Load())
}

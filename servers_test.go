package mlbalancer_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/mlbalancer/mlbalancer"
	"github.com/mlbalancer/mlbalancer/internal/memconn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Methods that servers answer. Those of the table hold the model's name in field 1, as a StringValue holds its value.
const (
	modelInfer       = "/inference.GRPCInferenceService/ModelInfer"
	modelStreamInfer = "/inference.GRPCInferenceService/ModelStreamInfer" // deferred
	generateStream   = "/fmaas.GenerationService/GenerateStream"          // deferred
	plainBidi        = "/test.Plain/Bidi"
	plainServer      = "/test.Plain/ServerStream"
)

var (
	bidi         = &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	serverStream = &grpc.StreamDesc{ServerStreams: true}
	clientStream = &grpc.StreamDesc{ClientStreams: true}
)

// asksHealth reports whether a method is one by which the policy asks for a server's health.
func asksHealth(method string) bool {
	return strings.HasSuffix(method, "/Watch") || strings.HasSuffix(method, "/Check") || strings.HasSuffix(method, "/StreamCoreMetrics") ||
		strings.HasSuffix(method, "/ServerReady")
}

func text(s string) *wrapperspb.StringValue { return wrapperspb.String(s) }

// servers is a set of in-memory servers, s0 to s(n-1).
type servers struct {
	target    string
	listeners map[string]*memconn.Listener
	running   map[string]*grpc.Server
	streams   atomic.Int64 // that servers have seen

	mu    sync.Mutex
	conns map[string][]net.Conn    // to each server
	cuts  map[string]chan struct{} // closed when the server can be reached again
}

// serve starts n servers, which answer any method: each message with "<server>:<message>". A message "fail" ends the call with
// DATA_LOSS, "hang" waits for the caller to go away.
func serve(t testing.TB, n int) *servers {
	s := &servers{listeners: map[string]*memconn.Listener{}, running: map[string]*grpc.Server{}}
	var addrs []string
	for i := range n {
		name := fmt.Sprintf("s%d", i)
		srv := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
			if method, _ := grpc.MethodFromServerStream(stream); asksHealth(method) {
				return status.Error(codes.Unimplemented, "the servers say nothing of their health")
			}
			s.streams.Add(1)
			return answer(name, stream)
		}))
		lis := memconn.Listen(1 << 16)
		s.listeners[name], s.running[name] = lis, srv
		addrs = append(addrs, name)
		done := make(chan error, 1)
		go func() { done <- srv.Serve(lis) }()
		t.Cleanup(func() { srv.Stop(); <-done })
	}
	s.target = "mlb-static:///" + strings.Join(addrs, ",")
	return s
}

func answer(server string, stream grpc.ServerStream) error {
	md, _ := metadata.FromIncomingContext(stream.Context())
	if err := stream.SetHeader(metadata.Pairs("server", server)); err != nil {
		return err
	}
	stream.SetTrailer(metadata.Pairs("done", server))
	if len(md.Get("greet")) > 0 {
		if err := stream.SendMsg(text(server + ":hello")); err != nil {
			return err
		}
	}
	for {
		msg := &wrapperspb.StringValue{}
		switch err := stream.RecvMsg(msg); {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case msg.Value == "fail":
			return status.Error(codes.DataLoss, "as asked")
		case msg.Value == "hang":
			<-stream.Context().Done()
			return status.FromContextError(stream.Context().Err()).Err()
		}
		if err := stream.SendMsg(text(server + ":" + msg.Value)); err != nil {
			return err
		}
	}
}

func (s *servers) dial(ctx context.Context, addr string) (net.Conn, error) {
	lis, ok := s.listeners[addr]
	if !ok {
		return nil, fmt.Errorf("nothing at %q", addr)
	}
	s.mu.Lock()
	cut := s.cuts[addr]
	s.mu.Unlock()
	if cut != nil {
		select {
		case <-cut:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	conn, err := lis.DialContext(ctx)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.conns == nil {
			s.conns = map[string][]net.Conn{}
		}
		s.conns[addr] = append(s.conns[addr], conn)
	}
	return conn, err
}

// cut breaks all connections to a server, which goes on, and holds up new ones until mend is called.
func (s *servers) cut(addr string) (mend func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cut := make(chan struct{})
	s.cuts = map[string]chan struct{}{addr: cut}
	for _, conn := range s.conns[addr] {
		conn.Close()
	}
	delete(s.conns, addr)
	return sync.OnceFunc(func() { close(cut) })
}

// client opens a channel with DialOptions and whatever opts add before them.
func (s *servers) client(t testing.TB, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	return s.clientOf(t, s.target, append(opts, mlbalancer.DialOptions()...)...)
}

func (s *servers) clientOf(t testing.TB, target string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	cc, err := grpc.NewClient(target, append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(s.dial)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { cc.Close() })
	return cc
}

// serverOf returns the server that an answer comes from.
func serverOf(reply *wrapperspb.StringValue) string {
	server, _, _ := strings.Cut(reply.Value, ":")
	return server
}

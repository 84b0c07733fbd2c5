package oip

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/mlbalancer/mlbalancer/health"
	"github.com/mlbalancer/mlbalancer/health/monitor"
	"github.com/mlbalancer/mlbalancer/internal/memconn"
	"github.com/mlbalancer/mlbalancer/internal/oip"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const interval = time.Second

// watching is a Watch that goes on.
type watching struct {
	mu      sync.Mutex
	reports []health.Report
	times   []time.Time
	err     error
	done    bool
}

// watch watches a server until the test ends. It is to be called in a bubble.
func watch(t *testing.T, conn grpc.ClientConnInterface, models ...string) *watching {
	t.Helper()
	w := &watching{}
	ctx, cancel := context.WithCancel(t.Context())
	o := &monitor.Options{Interval: interval, Models: func() []string { return models }}
	var wg sync.WaitGroup
	wg.Go(func() {
		err := source{}.Watch(ctx, conn, o, func(r *health.Report) {
			w.mu.Lock()
			defer w.mu.Unlock()
			kept := *r
			kept.Models = append([]health.Model(nil), r.Models...) // nil if there are none
			w.reports, w.times = append(w.reports, kept), append(w.times, time.Now())
		})
		w.mu.Lock()
		defer w.mu.Unlock()
		w.err, w.done = err, true
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	synctest.Wait()
	return w
}

// last returns the last report once a poll more has surely been made, unless the watch has ended.
func (w *watching) last(t *testing.T) health.Report {
	t.Helper()
	time.Sleep(interval * 13 / 10)
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	require.NotEmpty(t, w.reports)
	return w.reports[len(w.reports)-1]
}

func (w *watching) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.reports)
}

// ended returns how many reports a watch made that has ended, and how it did.
func (w *watching) ended(t *testing.T) (reports int, err error) {
	t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	require.True(t, w.done, "the watch has not ended")
	return len(w.reports), w.err
}

// states returns what a report says of each model.
func states(t *testing.T, r health.Report) map[string]health.ModelState {
	t.Helper()
	m := make(map[string]health.ModelState, len(r.Models))
	for _, model := range r.Models {
		require.NotContains(t, m, model.Name, "stands there once")
		m[model.Name] = model.State
	}
	return m
}

// asked is a request as the servers of these tests see it, whatever the method.
type asked = oip.ModelReadyRequest

// answer makes a server's answer.
type answer func(ctx context.Context, req *asked) (proto.Message, error)

// server is a server that is not Triton: it has just the methods that are set.
type server struct {
	mu      sync.Mutex
	answers map[string]answer
	calls   map[string]int
}

func (s *server) set(method string, a answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answers == nil {
		s.answers, s.calls = make(map[string]answer), make(map[string]int)
	}
	s.answers[method] = a
}

func (s *server) called(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[method]
}

// handle answers each call as set, and with UNIMPLEMENTED if nothing is.
func (s *server) handle(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	s.mu.Lock()
	s.calls[method]++
	a := s.answers[method]
	s.mu.Unlock()
	req := &asked{}
	if err := stream.RecvMsg(req); err != nil {
		return err
	}
	if a == nil {
		return status.Error(codes.Unimplemented, "Method not found!")
	}
	resp, err := a(stream.Context(), req)
	if err != nil {
		return err
	}
	return stream.SendMsg(resp)
}

// connect starts the server for the test, and returns a connection to it.
func (s *server) connect(t *testing.T) *grpc.ClientConn {
	t.Helper()
	lis := memconn.Listen(1 << 20)
	srv := grpc.NewServer(grpc.UnknownServiceHandler(s.handle), grpc.WaitForHandlers(true))
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(lis) })
	cc, err := grpc.NewClient("passthrough:///fake",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	require.NoError(t, err)
	t.Cleanup(func() {
		cc.Close()
		srv.Stop()
		wg.Wait()
	})
	return cc
}

// always answers the same.
func always(resp proto.Message) answer {
	return func(context.Context, *asked) (proto.Message, error) { return resp, nil }
}

// fails answers with a status.
func fails(code codes.Code, text string) answer {
	return func(context.Context, *asked) (proto.Message, error) { return nil, status.Error(code, text) }
}

// never answers.
func never(ctx context.Context, _ *asked) (proto.Message, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// raw answers bytes that need not be a message.
func raw(b []byte) answer {
	m := &oip.ServerReadyResponse{}
	m.ProtoReflect().SetUnknown(b)
	return always(m)
}

var ready = always(&oip.ServerReadyResponse{Ready: true})

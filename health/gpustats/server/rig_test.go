package server_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/mlbalancer/mlbalancer/health/gpustats/server"
	"github.com/mlbalancer/mlbalancer/internal/memconn"
	gpb "github.com/mlbalancer/mlbalancer/proto/mlbalancer/gpustats/v1"
)

// pause lets the time of a bubble pass, and whatever is due then be done.
func pause(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// serve serves s over a pipe for as long as the test runs.
func serve(t testing.TB, s *server.Server, options ...grpc.ServerOption) gpb.GPUStatsClient {
	lis := memconn.Listen(1 << 16)
	g := grpc.NewServer(options...)
	s.Register(g)
	done := make(chan error, 1)
	go func() { done <- g.Serve(lis) }()
	cc, err := grpc.NewClient("passthrough:///server", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, cc.Close())
		s.Close()
		g.Stop()
		assert.NoError(t, <-done)
	})
	return gpb.NewGPUStatsClient(cc)
}

// receipt is a report and when it came.
type receipt struct {
	*gpb.NodeReport
	at time.Time
}

// listener is a client that watches and keeps what it gets.
type listener struct {
	cancel context.CancelFunc
	done   chan struct{}

	mu       sync.Mutex
	receipts []receipt
	err      error
}

// listen starts a listener, and waits until it has what comes at once.
func listen(t testing.TB, c gpb.GPUStatsClient, req *gpb.WatchRequest) *listener {
	ctx, cancel := context.WithCancel(context.Background())
	l := &listener{cancel: cancel, done: make(chan struct{})}
	stream, err := c.Watch(ctx, req)
	require.NoError(t, err)
	go func() {
		defer close(l.done)
		for {
			r, err := stream.Recv()
			l.mu.Lock()
			if err != nil {
				l.err = err
				l.mu.Unlock()
				return
			}
			l.receipts = append(l.receipts, receipt{r, time.Now()})
			l.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-l.done
	})
	synctest.Wait()
	return l
}

// take returns what has come since it was called last.
func (l *listener) take() []receipt {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	got := l.receipts
	l.receipts = nil
	return got
}

// end waits until the watch is over and returns its error.
func (l *listener) end() error {
	<-l.done
	return l.err
}

func busy(inFlight int64) *gpb.NodeReport {
	return &gpb.NodeReport{InFlight: proto.Int64(inFlight), State: gpb.ServerState_SERVER_STATE_READY.Enum()}
}

func model(name, version string, state gpb.ModelState) *gpb.Model {
	m := &gpb.Model{Name: proto.String(name), State: state.Enum()}
	if version != "" {
		m.Version = proto.String(version)
	}
	return m
}

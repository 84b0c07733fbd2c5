package gpustats

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

	"github.com/mlbalancer/mlbalancer/health"
	"github.com/mlbalancer/mlbalancer/health/monitor"
	"github.com/mlbalancer/mlbalancer/internal/memconn"
	gpb "github.com/mlbalancer/mlbalancer/proto/mlbalancer/gpustats/v1"
)

// dial returns a connection to a server with the services that register adds, and what stops the server.
func dial(t testing.TB, register func(grpc.ServiceRegistrar)) (cc *grpc.ClientConn, stop func()) {
	lis := memconn.Listen(1 << 16)
	g := grpc.NewServer()
	register(g)
	done := make(chan error, 1)
	go func() { done <- g.Serve(lis) }()
	cc, err := grpc.NewClient("passthrough:///server", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	require.NoError(t, err)
	stop = sync.OnceFunc(func() {
		g.Stop()
		assert.NoError(t, <-done)
	})
	t.Cleanup(func() {
		assert.NoError(t, cc.Close())
		stop()
	})
	return cc, stop
}

// reports is what a server sends reports to.
type reports = grpc.ServerStreamingServer[gpb.NodeReport]

// scripted is a server whose watches go as the test says.
type scripted struct {
	gpb.UnimplementedGPUStatsServer
	watch func(*gpb.WatchRequest, reports) error
}

func (s scripted) Watch(req *gpb.WatchRequest, stream reports) error {
	return s.watch(req, stream)
}

func (s scripted) register(r grpc.ServiceRegistrar) { gpb.RegisterGPUStatsServer(r, s) }

// watching is a run of the source.
type watching struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error

	mu      sync.Mutex
	last    health.Report
	reports int
}

// watch starts the source on a connection.
func watch(t testing.TB, cc *grpc.ClientConn, interval time.Duration) *watching {
	ctx, cancel := context.WithCancel(context.Background())
	w := &watching{cancel: cancel, done: make(chan struct{})}
	o := &monitor.Options{Interval: interval, Models: func() []string { return nil }}
	go func() {
		defer close(w.done)
		w.err = monitor.Lookup(Name).Watch(ctx, cc, o, func(r *health.Report) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.last = *r
			w.last.Models = append([]health.Model(nil), r.Models...)
			w.reports++
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-w.done
	})
	return w
}

// got returns the last report and how many there were.
func (w *watching) got() (health.Report, int) {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last, w.reports
}

// end waits until the source returns.
func (w *watching) end() error {
	<-w.done
	return w.err
}

// pause lets the time of a bubble pass.
func pause(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

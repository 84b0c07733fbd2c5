package fleet

import (
	"context"

	"google.golang.org/grpc"

	"github.com/mlbalancer/mlbalancer/health/gpustats/server"
	gpustatsv1 "github.com/mlbalancer/mlbalancer/proto/mlbalancer/gpustats/v1"
)

// registerGPUStats adds mlbalancer.gpustats.v1 to a server until ctx ends. It returns what is to be told of changes. What may be reported in a second
// is so in model time.
func (s *Server) registerGPUStats(ctx context.Context, srv *grpc.Server) *server.Server {
	stats := server.New(server.Options{Budget: server.DefaultBudget / s.clock.scale})
	stats.UpdateFunc(s.sample)
	context.AfterFunc(ctx, stats.Close)
	gpustatsv1.RegisterGPUStatsServer(srv, &gpuStats{server: s, stats: stats})
	return stats
}

// sample returns the server's report as of now.
func (s *Server) sample() (r *gpustatsv1.NodeReport) {
	s.update(func() { r = s.report() })
	return r
}

// gpuStats is mlbalancer.gpustats.v1 as its own server serves it, as far as the signal is neither muted nor stalled.
type gpuStats struct {
	gpustatsv1.UnimplementedGPUStatsServer
	server *Server
	stats  *server.Server
}

// Get implements mlbalancer.gpustats.v1.GPUStats.
func (g *gpuStats) Get(ctx context.Context, req *gpustatsv1.GetRequest) (*gpustatsv1.NodeReport, error) {
	if err := g.server.tell(ctx, GPUStats, func() error { return nil }); err != nil {
		return nil, err
	}
	return g.stats.Get(ctx, req)
}

// Watch implements mlbalancer.gpustats.v1.GPUStats.
func (g *gpuStats) Watch(req *gpustatsv1.WatchRequest, stream grpc.ServerStreamingServer[gpustatsv1.NodeReport]) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	muted := make(chan bool, 1)
	go func() {
		muted <- g.server.muted(ctx, GPUStats)
		cancel()
	}()
	err := g.stats.Watch(req, &stallable{ServerStreamingServer: stream, ctx: ctx, server: g.server})
	cancel()
	if <-muted {
		return errSilent
	}
	return err
}

// muted waits until the server does not speak a signal, or ctx ends, and reports which.
func (s *Server) muted(ctx context.Context, signal Signals) bool {
	for {
		var speaks bool
		var changed <-chan struct{}
		s.update(func() { speaks, changed = s.speaks(signal), s.changed })
		if !speaks {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// stallable is a stream with a context of its own, which drops reports while the signal is stalled.
type stallable struct {
	grpc.ServerStreamingServer[gpustatsv1.NodeReport]
	ctx    context.Context
	server *Server
}

// Context implements grpc.ServerStream.
func (w *stallable) Context() context.Context { return w.ctx }

// Send implements grpc.ServerStreamingServer.
func (w *stallable) Send(r *gpustatsv1.NodeReport) error {
	var drop bool
	w.server.update(func() { drop = !w.server.speaks(GPUStats) || w.server.faults.stalled&GPUStats != 0 })
	if drop {
		return nil
	}
	return w.ServerStreamingServer.Send(r)
}

package fleet

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	ghealth "google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer/internal/oip"
)

// registerHealth adds grpc.health.v1 to a server that runs until ctx ends. It returns the standard health server, if that is
// what it is.
func (s *Server) registerHealth(ctx context.Context, srv *grpc.Server) *ghealth.Server {
	if s.cfg.NoWatch {
		healthpb.RegisterHealthServer(srv, &checkOnly{server: s})
		return nil
	}
	h := ghealth.NewServer()
	h.SetServingStatus(oip.GRPCInferenceService_ServiceDesc.ServiceName, healthpb.HealthCheckResponse_SERVING)
	healthpb.RegisterHealthServer(srv, &standardHealth{Server: h, ctx: ctx})
	return h
}

// standardHealth is gRPC's health server, except that its watches end with the server: it can stop gracefully while it is watched.
type standardHealth struct {
	*ghealth.Server
	ctx context.Context
}

// Watch implements grpc.health.v1.Health.
func (h *standardHealth) Watch(
	req *healthpb.HealthCheckRequest, stream grpc.ServerStreamingServer[healthpb.HealthCheckResponse],
) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(h.ctx, cancel)()
	err := h.Server.Watch(req, &watch{ServerStreamingServer: stream, ctx: ctx})
	if h.ctx.Err() != nil {
		return status.Error(codes.Unavailable, "Server exiting")
	}
	return err
}

// watch is a stream with a context of its own.
type watch struct {
	grpc.ServerStreamingServer[healthpb.HealthCheckResponse]
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (w *watch) Context() context.Context { return w.ctx }

// checkOnly is grpc.health.v1 as Triton serves it: Check, for any service name, and UNIMPLEMENTED for the rest.
type checkOnly struct {
	healthpb.UnimplementedHealthServer
	server *Server
}

// Check implements grpc.health.v1.Health.
func (h *checkOnly) Check(context.Context, *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	ready, err := h.server.ready()
	if err != nil {
		return nil, err
	}
	resp := &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_NOT_SERVING}
	if ready {
		resp.Status = healthpb.HealthCheckResponse_SERVING
	}
	return resp, nil
}

package fleet

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer/internal/oip"
)

// registerHealth adds grpc.health.v1 to a server.
func (s *Server) registerHealth(srv *grpc.Server) {
	if s.cfg.NoWatch {
		healthpb.RegisterHealthServer(srv, &checkOnly{server: s})
		return
	}
	healthpb.RegisterHealthServer(srv, &standardHealth{server: s})
}

// standardHealth is grpc.health.v1 as gRPC's own health server answers it.
type standardHealth struct {
	healthpb.UnimplementedHealthServer
	server *Server
}

// Check implements grpc.health.v1.Health.
func (h *standardHealth) Check(ctx context.Context, req *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	resp := &healthpb.HealthCheckResponse{}
	err := h.server.tell(ctx, Health, func() error {
		if resp.Status = h.server.health(req.GetService()); resp.Status == healthpb.HealthCheckResponse_SERVICE_UNKNOWN {
			return status.Error(codes.NotFound, "unknown service")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// Watch implements grpc.health.v1.Health. A watch ends when the server begins to stop, so that it can stop gracefully.
func (h *standardHealth) Watch(
	req *healthpb.HealthCheckRequest, stream grpc.ServerStreamingServer[healthpb.HealthCheckResponse],
) error {
	s := h.server
	last := healthpb.HealthCheckResponse_ServingStatus(-1)
	for {
		var (
			silent, stalled   bool
			now               healthpb.HealthCheckResponse_ServingStatus
			changed, stopping <-chan struct{}
		)
		s.update(func() {
			silent, stalled = !s.speaks(Health), s.faults.stalled&Health != 0
			now, changed, stopping = s.health(req.GetService()), s.changed, s.stopping
		})
		if silent {
			return errSilent
		}
		if !stalled && now != last {
			if err := stream.Send(&healthpb.HealthCheckResponse{Status: now}); err != nil {
				return err
			}
			last = now
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case <-stopping:
			return errExiting
		}
	}
}

// health returns the status of a service in grpc.health.v1.
func (s *Server) health(service string) healthpb.HealthCheckResponse_ServingStatus {
	serving := !s.faults.draining
	switch service {
	case "", oip.GRPCInferenceService_ServiceDesc.ServiceName:
		serving = serving && s.faults.ready(s.gpu.now)
	default:
		m := s.told(Health)[service]
		if !s.cfg.ModelHealth || m == nil || m.state == absent {
			return healthpb.HealthCheckResponse_SERVICE_UNKNOWN
		}
		serving = serving && m.state == resident
	}
	if serving {
		return healthpb.HealthCheckResponse_SERVING
	}
	return healthpb.HealthCheckResponse_NOT_SERVING
}

// checkOnly is grpc.health.v1 as Triton serves it: Check, for any service name, and UNIMPLEMENTED for the rest.
type checkOnly struct {
	healthpb.UnimplementedHealthServer
	server *Server
}

// Check implements grpc.health.v1.Health.
func (h *checkOnly) Check(ctx context.Context, _ *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	ready, err := h.server.ready(ctx, Health)
	if err != nil {
		return nil, err
	}
	resp := &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_NOT_SERVING}
	if ready {
		resp.Status = healthpb.HealthCheckResponse_SERVING
	}
	return resp, nil
}

// Package standard is the source "standard" of health reports: the health service that gRPC itself defines, grpc.health.v1. Its
// import registers it.
//
// Where the server has Watch, a stream tells of the server as a whole (the service ""), and one more for each model in use of the
// model: servers may keep a state per model under the model's own name. One that does is taken to load no model because it is asked
// for it. It need not name all its models: of a name that it has never known nothing is said, and one that it knew and no longer knows
// (SERVICE_UNKNOWN) is a model that has gone. Where the server has only Check (Triton), that is called once per interval, for the
// server alone, since Triton answers the same for every name.
package standard

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer/health"
	"github.com/mlbalancer/mlbalancer/health/monitor"
)

func init() { monitor.Register(source{}) }

type source struct{}

// Name implements monitor.Source.
func (source) Name() string { return "standard" }

// Watch implements monitor.Source.
func (source) Watch(ctx context.Context, conn grpc.ClientConnInterface, o *monitor.Options, report func(*health.Report)) error {
	client := healthpb.NewHealthClient(conn)
	err := watch(ctx, client, o, report)
	if status.Code(err) == codes.Unimplemented {
		return poll(ctx, client, o, report)
	}
	return err
}

// follow opens a Watch stream for a service, and calls hear with each status until that returns false or the stream has ended. It
// never returns nil: a Watch does not end by the server's will (health.proto).
func follow(ctx context.Context, client healthpb.HealthClient, service string, hear func(serving) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := client.Watch(ctx, &healthpb.HealthCheckRequest{Service: service})
	if err != nil {
		return err
	}
	for {
		resp, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return status.Errorf(codes.Unavailable, "standard: the server has ended the Watch of %q", service)
		case err != nil:
			return err
		case !hear(resp.GetStatus()):
			return context.Canceled
		}
	}
}

type serving = healthpb.HealthCheckResponse_ServingStatus

// server returns what a status says of the server as a whole. One that does not know the service "" has not been told yet that it
// is ready (HLTH-03).
func server(s serving) health.ServerState {
	switch s {
	case healthpb.HealthCheckResponse_SERVING:
		return health.ServerReady
	case healthpb.HealthCheckResponse_NOT_SERVING, healthpb.HealthCheckResponse_SERVICE_UNKNOWN:
		return health.ServerNotReady
	}
	return health.ServerUnknown
}

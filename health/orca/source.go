// Package orca reads the load reports of the Open Request Cost Aggregation that servers send with the answers to calls, and is
// the source "orca" of health reports, which gets the same reports out of band: from the service
// xds.service.orca.v3.OpenRcaService. Both ways have one meaning (see Load). Its import registers the source, and makes gRPC read
// the reports of single calls.
package orca

import (
	"context"
	"errors"
	"io"

	orcaservicepb "github.com/cncf/xds/go/xds/service/orca/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/orca" // makes gRPC parse the trailer endpoint-load-metrics-bin into DoneInfo.ServerLoad
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/mlbalancer/mlbalancer/health"
	"github.com/mlbalancer/mlbalancer/health/monitor"
)

func init() { monitor.Register(source{}) }

type source struct{}

// Name implements monitor.Source.
func (source) Name() string { return "orca" }

// Watch implements monitor.Source. A server that reports more rarely than it is asked to (gRPC's own service does not go below 30
// s unless told so) is heard for a while after each report only: a load that is older would send everybody to the same place.
func (source) Watch(ctx context.Context, conn grpc.ClientConnInterface, o *monitor.Options, report func(*health.Report)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := orcaservicepb.NewOpenRcaServiceClient(conn).StreamCoreMetrics(ctx, &orcaservicepb.OrcaLoadReportRequest{
		ReportInterval: durationpb.New(o.Interval),
	})
	if err != nil {
		return err
	}
	r := health.Report{Interval: o.Interval}
	for ctx.Err() == nil {
		msg, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return status.Error(codes.Unavailable, "orca: the server has ended its stream of load reports")
		}
		if err != nil {
			return err
		}
		Load(msg, &r.Load)
		report(&r)
	}
	return ctx.Err()
}

// Package gpustats is the source of health reports that a server sends by mlbalancer.gpustats.v1.GPUStats: its load, its memory
// and its models, all in one stream. Package server, below it, is the other end. Importing the package registers the source.
package gpustats

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/mlbalancer/mlbalancer/health"
	"github.com/mlbalancer/mlbalancer/health/monitor"
	gpb "github.com/mlbalancer/mlbalancer/proto/mlbalancer/gpustats/v1"
)

// Name is the source's name in health.sources.
const Name = "gpustats"

const (
	// minChange is the least relative change of a number that is worth a report of its own.
	minChange = 0.05
	// silentIntervals is for how many intervals, and minSilence for how long at least, a server may send nothing before it is
	// asked again on another stream.
	silentIntervals = 10
	minSilence      = 10 * time.Second
	// minGap is how long the next report is left to wait after one was read: a server that sends without end is slowed down by
	// flow control, and what it can make us spend is bounded.
	minGap = time.Millisecond
	// maxMessage bounds the size of a report.
	maxMessage = 4 << 20
	// The interval that a server keeps to where it is asked for none, and its bounds, as the protocol has them.
	defaultInterval = time.Second
	minInterval     = 10 * time.Millisecond
	maxInterval     = time.Minute
)

func init() { monitor.Register(source{}) }

// source is the gpustats source over the connection to the server itself.
type source struct{}

func (source) Name() string { return Name }

// Watch asks for all models: servers send that to all who ask for it without making it anew, and only then is a model that is not
// reported known to be absent.
func (source) Watch(ctx context.Context, conn grpc.ClientConnInterface, o *monitor.Options, report func(*health.Report)) error {
	req := &gpb.WatchRequest{MinChange: proto.Float64(minChange)}
	if o.Interval > 0 {
		req.Interval = durationpb.New(o.Interval)
	}
	return WatchConn(ctx, conn, req, report)
}

// WatchConn watches a server over any connection, such as one to a sidecar on another port, and calls report, in its own
// goroutine, with each report that comes. It returns when ctx is done or the stream has ended, and always with an error: that
// of the stream, or UNAVAILABLE if the server ended it without one or was silent for ten intervals (and for 10 s at least). The
// report and its models are used again for the next one.
//
// It reads at most 1,000 reports per second, of up to 4 MiB each, and takes up to 4,096 models of one; the rest is left out.
func WatchConn(ctx context.Context, conn grpc.ClientConnInterface, req *gpb.WatchRequest, report func(*health.Report)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	interval := intervalOf(req)
	silence := max(silentIntervals*interval, minSilence)
	var silent atomic.Bool
	watchdog := time.AfterFunc(silence, func() {
		silent.Store(true)
		cancel()
	})
	defer watchdog.Stop()
	// why returns the error to end with.
	why := func(err error) error {
		switch {
		case silent.Load():
			return status.Errorf(codes.Unavailable, "gpustats: no report for %v, want one every %v", silence, interval)
		case errors.Is(err, io.EOF):
			return status.Error(codes.Unavailable, "gpustats: the server ended the watch")
		}
		return err
	}

	stream, err := gpb.NewGPUStatsClient(conn).Watch(ctx, req, grpc.MaxCallRecvMsgSize(maxMessage))
	if err != nil {
		return why(err)
	}
	c := converter{interval: interval, filtered: len(req.GetModels()) > 0}
	gap := time.NewTimer(minGap)
	defer gap.Stop()
	var m gpb.NodeReport
	for {
		if err := stream.RecvMsg(&m); err != nil {
			return why(err)
		}
		watchdog.Reset(silence)
		report(c.convert(&m, time.Now()))
		select {
		case <-gap.C:
		case <-ctx.Done():
			return why(status.FromContextError(ctx.Err()).Err())
		}
		gap.Reset(minGap)
	}
}

// intervalOf returns the interval that a server keeps to when it is asked so.
func intervalOf(req *gpb.WatchRequest) time.Duration {
	d := req.GetInterval().AsDuration()
	if d <= 0 {
		return defaultInterval
	}
	return max(minInterval, min(d, maxInterval))
}

package peers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	gpb "github.com/mlbalancer/mlbalancer/proto/mlbalancer/gpustats/v1"
)

const (
	// copies is on how many servers each model is, where servers say what they hold.
	copies = 3
	// reportAge is how old what a server says is when it says it.
	reportAge = 250 * time.Millisecond
)

// holdings returns the models that each of n servers holds: each of the models is on some of them.
func holdings(n, models int) [][]string {
	rng := rand.New(rand.NewPCG(1, 1))
	held := make([][]string, n)
	for i := range models {
		for _, at := range rng.Perm(n)[:min(copies, n)] {
			held[at] = append(held[at], modelName(i))
		}
	}
	return held
}

// nodeReport is what a server says that holds some models and is half busy, but for when that was.
func nodeReport(models []string, active int64) *gpb.NodeReport {
	m := &gpb.NodeReport{
		State:    gpb.ServerState_SERVER_STATE_READY.Enum(),
		InFlight: proto.Int64(active), Waiting: proto.Int64(0), Connections: proto.Int64(12), Concurrency: proto.Int64(4),
		Utilization: proto.Float64(.5), QueueDelay: durationpb.New(0),
		LoadsOnDemand: proto.Bool(true), LaneFreeIn: durationpb.New(0), LoadTime: durationpb.New(5 * time.Second),
		ModelsComplete: proto.Bool(true),
		Gpus:           []*gpb.GPU{{MemoryTotalBytes: proto.Int64(80 << 30), MemoryUsedBytes: proto.Int64(60 << 30)}},
		Victim:         &gpb.Victim{Kind: gpb.Victim_KIND_ROOM.Enum()},
	}
	for _, name := range models {
		m.Models = append(m.Models, &gpb.Model{
			Name: proto.String(name), State: gpb.ModelState_MODEL_STATE_READY.Enum(), ServiceTime: durationpb.New(100 * time.Millisecond),
		})
	}
	return m
}

// reporting is a connection to a server that has nothing but mlbalancer.gpustats.v1, and reports as often as it is asked to.
type reporting struct {
	bareServer
	models []string
	report []byte // a NodeReport
}

func newReporting(models []string, active int64) reporting {
	report, err := proto.Marshal(nodeReport(models, active))
	if err != nil {
		panic(err)
	}
	return reporting{models: models, report: report}
}

// NewStream implements grpc.ClientConnInterface.
func (r reporting) NewStream(ctx context.Context, _ *grpc.StreamDesc, method string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	if method != gpb.GPUStats_Watch_FullMethodName {
		return nil, errBareServer
	}
	return &reportStream{ctx: ctx, server: r}, nil
}

// reportStream is a stream of such reports: one at once, and one per interval.
type reportStream struct {
	ctx      context.Context
	server   reporting
	interval time.Duration
	begun    bool
}

// Header implements grpc.ClientStream.
func (*reportStream) Header() (metadata.MD, error) { return nil, nil }

// Trailer implements grpc.ClientStream.
func (*reportStream) Trailer() metadata.MD { return nil }

// CloseSend implements grpc.ClientStream.
func (*reportStream) CloseSend() error { return nil }

// Context implements grpc.ClientStream.
func (s *reportStream) Context() context.Context { return s.ctx }

// SendMsg implements grpc.ClientStream.
func (s *reportStream) SendMsg(m any) error {
	req, ok := m.(*gpb.WatchRequest)
	if !ok {
		return fmt.Errorf("a %T is sent, want a WatchRequest", m)
	}
	if s.interval = req.GetInterval().AsDuration(); s.interval <= 0 {
		return errors.New("no interval is asked for")
	}
	return nil
}

// RecvMsg implements grpc.ClientStream.
func (s *reportStream) RecvMsg(m any) error {
	into, ok := m.(*gpb.NodeReport)
	if !ok {
		return fmt.Errorf("a %T is received, want a NodeReport", m)
	}
	if err := s.next(); err != nil {
		return err
	}
	if err := proto.Unmarshal(s.server.report, into); err != nil {
		return err
	}
	into.SampledAt = timestamppb.New(time.Now().Add(-reportAge))
	return nil
}

// next waits until a report is due.
func (s *reportStream) next() error {
	if s.begun {
		select {
		case <-time.After(s.interval):
		case <-s.ctx.Done():
			return s.ctx.Err()
		}
	}
	s.begun = true
	return nil
}

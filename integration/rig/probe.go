package rig

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/mlbalancer/mlbalancer/internal/oip"
)

// Methods by which servers are asked about their health. Calls of them count as asked, and not as calls.
const (
	HealthWatch = healthpb.Health_Watch_FullMethodName
	HealthCheck = healthpb.Health_Check_FullMethodName
	ServerReady = "/inference.GRPCInferenceService/ServerReady"
	Statistics  = "/inference.GRPCInferenceService/ModelStatistics"
	GPUStats    = "/mlbalancer.gpustats.v1.GPUStats/Watch"
	LoadReports = "/xds.service.orca.v3.OpenRcaService/StreamCoreMetrics"
)

// Answer is how a server answers those who ask about its health by a method, unary or not.
type Answer func(stream grpc.ServerStream) error

// probes are the methods by which servers are asked, with what all of them answer at first: they serve grpc.health.v1, and nothing else.
var probes = map[string]func(b *Backend) Answer{
	HealthWatch: (*Backend).healthWatch,
	HealthCheck: (*Backend).healthCheck,
	ServerReady: nil,
	Statistics:  nil,
	GPUStats:    nil,
	LoadReports: nil,
	"/inference.GRPCInferenceService/RepositoryIndex":                    nil,
	"/inference.model_repository.ModelRepositoryService/RepositoryIndex": nil,
}

// desk is where a server is asked about its health.
type desk struct {
	mu      sync.Mutex
	answers map[string]Answer
	asked   map[string]int
	running int
}

// Answers sets how the server answers those who ask by a method from now on. Nil: as it did at first.
func (b *Backend) Answers(method string, a Answer) {
	b.desk.mu.Lock()
	defer b.desk.mu.Unlock()
	if b.desk.answers == nil {
		b.desk.answers = map[string]Answer{}
	}
	b.desk.answers[method] = a
}

// Asked returns how often the server was asked by a method so far.
func (b *Backend) Asked(method string) int {
	b.desk.mu.Lock()
	defer b.desk.mu.Unlock()
	return b.desk.asked[method]
}

// AskedAtAll returns how often the server was asked so far, by any method.
func (b *Backend) AskedAtAll() (n int) {
	b.desk.mu.Lock()
	defer b.desk.mu.Unlock()
	for _, k := range b.desk.asked {
		n += k
	}
	return n
}

// Asking returns how many of those who ask are being answered.
func (b *Backend) Asking() int {
	b.desk.mu.Lock()
	defer b.desk.mu.Unlock()
	return b.desk.running
}

// answerProbe answers one who asks.
func (b *Backend) answerProbe(method string, first func(*Backend) Answer, stream grpc.ServerStream) error {
	d := &b.desk
	d.mu.Lock()
	if d.asked == nil {
		d.asked = map[string]int{}
	}
	d.asked[method]++
	d.running++
	a := d.answers[method]
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.running--
	}()
	switch {
	case a != nil:
	case first != nil:
		a = first(b)
	default:
		a = Refuses(codes.Unimplemented, "the server says nothing of its health this way")
	}
	return a(stream)
}

func (b *Backend) healthWatch() Answer {
	return func(stream grpc.ServerStream) error {
		var req healthpb.HealthCheckRequest
		if err := stream.RecvMsg(&req); err != nil {
			return err
		}
		s := b.healthServer()
		if s == nil {
			return errStopped
		}
		return s.Watch(&req, &grpc.GenericServerStream[healthpb.HealthCheckRequest, healthpb.HealthCheckResponse]{ServerStream: stream})
	}
}

func (b *Backend) healthCheck() Answer {
	return Replies(func(ctx context.Context, req *healthpb.HealthCheckRequest) (proto.Message, error) {
		s := b.healthServer()
		if s == nil {
			return nil, errStopped
		}
		return s.Check(ctx, req)
	})
}

var errStopped = status.Error(codes.Unavailable, "the server has stopped")

func (b *Backend) healthServer() healthpb.HealthServer {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.health == nil {
		return nil
	}
	return b.health
}

// Serving sets what the server answers to health checks of the server as a whole; it is true at first. The server must be started.
func (b *Backend) Serving(yes bool) {
	s := healthpb.HealthCheckResponse_NOT_SERVING
	if yes {
		s = healthpb.HealthCheckResponse_SERVING
	}
	b.ServingStatus("", s)
}

// ServingStatus sets what the server answers to health checks of a service, the name of a model for instance. At first it knows
// none but "". The server must be started.
func (b *Backend) ServingStatus(service string, s healthpb.HealthCheckResponse_ServingStatus) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.health != nil {
		b.health.SetServingStatus(service, s)
	}
}

// Refuses answers with a status.
func Refuses(c codes.Code, text string) Answer {
	return func(grpc.ServerStream) error { return status.Error(c, text) }
}

// Hangs never answers.
func Hangs(stream grpc.ServerStream) error {
	<-stream.Context().Done()
	return status.FromContextError(stream.Context().Err()).Err()
}

// Says sends messages, and then does what another answer does. Nil: it ends the stream without an error.
func Says(then Answer, messages ...proto.Message) Answer {
	return func(stream grpc.ServerStream) error {
		for _, m := range messages {
			if err := stream.SendMsg(m); err != nil {
				return err
			}
		}
		if then == nil {
			return nil
		}
		return then(stream)
	}
}

// Replies answers a request with one message.
func Replies[T any, Request interface {
	*T
	proto.Message
}](reply func(ctx context.Context, req Request) (proto.Message, error)) Answer {
	return func(stream grpc.ServerStream) error {
		req := Request(new(T))
		if err := stream.RecvMsg(req); err != nil {
			return err
		}
		m, err := reply(stream.Context(), req)
		if err != nil {
			return err
		}
		return stream.SendMsg(m)
	}
}

// IsServing is a message of grpc.health.v1.
func IsServing(yes bool) proto.Message {
	s := healthpb.HealthCheckResponse_NOT_SERVING
	if yes {
		s = healthpb.HealthCheckResponse_SERVING
	}
	return &healthpb.HealthCheckResponse{Status: s}
}

// HasModels makes the server answer as Triton does whether it is ready, as ready says at each time, and which models are: always these.
func (b *Backend) HasModels(ready func() bool, models ...string) {
	b.Answers(ServerReady, Replies(func(context.Context, *emptypb.Empty) (proto.Message, error) {
		return &oip.ServerReadyResponse{Ready: ready()}, nil
	}))
	b.Answers(Statistics, Replies(func(context.Context, *emptypb.Empty) (proto.Message, error) {
		r := &oip.ModelStatisticsResponse{}
		for _, m := range models {
			r.ModelStats = append(r.ModelStats, &oip.ModelStatistics{Name: m, Version: "1"})
		}
		return r, nil
	}))
}

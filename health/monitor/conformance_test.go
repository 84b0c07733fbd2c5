package monitor_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/mlbalancer/mlbalancer/health"
	"github.com/mlbalancer/mlbalancer/health/monitor"
	"github.com/mlbalancer/mlbalancer/health/monitor/monitortest"

	_ "github.com/mlbalancer/mlbalancer/health/orca"
	_ "github.com/mlbalancer/mlbalancer/health/standard"
)

// forEach runs a test of each source against a server whose every method is answered by handler, in time of its own.
func forEach(t *testing.T, handler grpc.StreamHandler, test func(t *testing.T, s monitor.Source, conn grpc.ClientConnInterface)) {
	require.NotEmpty(t, monitor.Names())
	for _, name := range monitor.Names() {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				var opts []grpc.ServerOption
				if handler != nil {
					opts = append(opts, grpc.UnknownServiceHandler(handler))
				}
				test(t, monitor.Lookup(name), monitortest.Serve(t, nil, opts...))
			})
		})
	}
}

func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Parallel()
	synctest.Test(t, test)
}

var options = monitor.Options{Interval: time.Second, Models: func() []string { return []string{"a", "b"} }}

// watch runs Watch for at most some time, and returns what it returned and how long that took.
func watch(t *testing.T, s monitor.Source, conn grpc.ClientConnInterface, d time.Duration, r *monitortest.Record) (
	took time.Duration, err error,
) {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	start := time.Now()
	err = s.Watch(ctx, conn, &options, r.Add)
	return time.Since(start), err
}

func TestAServerThatImplementsNothingIsUnimplemented(t *testing.T) {
	t.Parallel()
	forEach(t, nil, func(t *testing.T, s monitor.Source, conn grpc.ClientConnInterface) {
		var r monitortest.Record
		took, err := watch(t, s, conn, time.Minute, &r)
		assert.Equal(t, codes.Unimplemented, status.Code(err), "%v", err)
		assert.Less(t, took, time.Second)
		assert.Zero(t, r.Now().Reports)
	})
}

func TestAServerThatNeverAnswersSaysNothing(t *testing.T) {
	t.Parallel()
	hang := func(_ any, s grpc.ServerStream) error {
		<-s.Context().Done()
		return nil
	}
	forEach(t, hang, func(t *testing.T, s monitor.Source, conn grpc.ClientConnInterface) {
		var r monitortest.Record
		took, err := watch(t, s, conn, 10*time.Millisecond, &r)
		assert.Error(t, err)
		assert.Equal(t, 10*time.Millisecond, took, "it returns when ctx ends")
		assert.Zero(t, r.Now().Reports)
	})
}

func TestAServerThatDeniesIsNoFailure(t *testing.T) {
	t.Parallel()
	for _, denial := range []error{
		status.Error(codes.PermissionDenied, "not you"),
		status.Error(codes.Unauthenticated, "who are you?"),
		status.Error(codes.Unavailable, "This protocol is restricted, expecting header 'triton-grpc-protocol-health'"),
	} {
		deny := func(any, grpc.ServerStream) error { return denial }
		t.Run(status.Code(denial).String(), func(t *testing.T) {
			t.Parallel()
			forEach(t, deny, func(t *testing.T, s monitor.Source, conn grpc.ClientConnInterface) {
				var r monitortest.Record
				took, err := watch(t, s, conn, time.Minute, &r)
				assert.True(t, monitor.Denied(err), "%v", err)
				assert.Less(t, took, time.Second)
				assert.Zero(t, r.Now().Reports)
			})
		})
	}
}

func TestAServerThatAnswersNonsenseIsSurvived(t *testing.T) {
	t.Parallel()
	nonsense := func(_ any, s grpc.ServerStream) error { return s.SendMsg(wrapperspb.String("\xff\xff is no text")) }
	garble := func(any, grpc.ServerStream) error { return status.Error(codes.Code(77), "\x00\xff") }
	for i, handler := range []grpc.StreamHandler{nonsense, garble} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			forEach(t, handler, func(t *testing.T, s monitor.Source, conn grpc.ClientConnInterface) {
				var r monitortest.Record
				_, err := watch(t, s, conn, time.Minute, &r)
				assert.Error(t, err)
				assert.NotEqual(t, codes.Unimplemented, status.Code(err), "%v", err)
			})
		})
	}
}

// counted is a connection that counts the messages that are read from its streams.
type counted struct {
	grpc.ClientConnInterface
	read atomic.Int64
}

func (c *counted) NewStream(
	ctx context.Context, d *grpc.StreamDesc, method string, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	s, err := c.ClientConnInterface.NewStream(ctx, d, method, opts...)
	return &countedStream{s, c}, err
}

type countedStream struct {
	grpc.ClientStream
	conn *counted
}

func (s *countedStream) RecvMsg(m any) error {
	s.conn.read.Add(1)
	return s.ClientStream.RecvMsg(m)
}

// A message without content is one of any kind.
func TestAServerThatTalksWithoutEndIsCutOff(t *testing.T) {
	t.Parallel()
	for n, name := range monitor.Names() {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				var calls atomic.Int64
				conn := &counted{ClientConnInterface: monitortest.Serve(t, nil, grpc.UnknownServiceHandler(
					func(_ any, s grpc.ServerStream) error {
						calls.Add(1)
						for {
							if err := s.SendMsg(&emptypb.Empty{}); err != nil {
								return err
							}
						}
					}))}
				var r monitortest.Record
				run(t, conn, n, &r, 4*time.Second)
				assert.LessOrEqual(t, r.Now().Reports, 3*2, "three times until cut off")
				assert.LessOrEqual(t, conn.read.Load(), int64(3*1100))
				assert.NotZero(t, calls.Load())
			})
		})
	}
}

// run runs a source for some time.
func run(t *testing.T, conn grpc.ClientConnInterface, source int, sink monitor.Sink, d time.Duration) {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	monitor.Run(ctx, conn, []int{source}, &options, sink)
}

func TestNothingIsSaidAfterTheEnd(t *testing.T) {
	t.Parallel()
	forEach(t, nil, func(t *testing.T, s monitor.Source, conn grpc.ClientConnInterface) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		assert.Error(t, s.Watch(ctx, conn, &options, func(*health.Report) { t.Error("a report") }))
	})
}

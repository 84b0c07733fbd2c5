package monitor_test

import (
	"context"
	"fmt"
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
func watch(t *testing.T, s monitor.Source, conn grpc.ClientConnInterface, d time.Duration, r *monitortest.Record) (error, time.Duration) {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	start := time.Now()
	return s.Watch(ctx, conn, &options, r.Add), time.Since(start)
}

func TestAServerThatImplementsNothingIsUnimplemented(t *testing.T) {
	t.Parallel()
	forEach(t, nil, func(t *testing.T, s monitor.Source, conn grpc.ClientConnInterface) {
		var r monitortest.Record
		err, took := watch(t, s, conn, time.Minute, &r)
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
		err, took := watch(t, s, conn, 10*time.Millisecond, &r)
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
				err, took := watch(t, s, conn, time.Minute, &r)
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
				err, _ := watch(t, s, conn, time.Minute, &r)
				assert.Error(t, err)
				assert.NotEqual(t, codes.Unimplemented, status.Code(err), "%v", err)
			})
		})
	}
}

// A message without content is one of any kind.
func TestAServerThatTalksWithoutEndIsCutOff(t *testing.T) {
	t.Parallel()
	for n, name := range monitor.Names() {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				calls, messages := 0, 0 // by one handler at a time
				conn := monitortest.Serve(t, nil, grpc.MaxConcurrentStreams(1), grpc.UnknownServiceHandler(
					func(_ any, s grpc.ServerStream) error {
						calls++
						for {
							if err := s.SendMsg(&emptypb.Empty{}); err != nil {
								return err
							}
							messages++
						}
					}))
				var r monitortest.Record
				run(t, conn, n, &r, 10*time.Second)
				synctest.Wait()
				said := r.Now()
				assert.LessOrEqual(t, calls, 12)
				assert.NotZero(t, messages)
				assert.LessOrEqual(t, messages, calls*20_000, "a window's worth, and what is read")
				assert.LessOrEqual(t, said.Reports, 2*calls)
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

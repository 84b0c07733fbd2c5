package gpustats

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/mlbalancer/mlbalancer/health"
	"github.com/mlbalancer/mlbalancer/health/gpustats/server"
	"github.com/mlbalancer/mlbalancer/health/monitor"
	gpb "github.com/mlbalancer/mlbalancer/proto/mlbalancer/gpustats/v1"
)

func TestRegistered(t *testing.T) {
	t.Parallel()
	require.NotNil(t, monitor.Lookup("gpustats"))
	assert.Contains(t, monitor.Names(), Name)
}

// What a server says arrives when it changes, and once per interval.
func TestSourceWithServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := server.New(server.Options{})
		s.Update(fifty(false))
		cc, _ := dial(t, s.Register)
		w := watch(t, cc, 250*time.Millisecond)
		r, n := w.got()
		require.Equal(t, 1, n)
		assert.Equal(t, 250*time.Millisecond, r.Interval)
		assert.Equal(t, health.ServerReady, r.Server)
		assert.Len(t, r.Models, 50)
		assert.True(t, r.Complete)
		assert.Equal(t, 3, r.Load.Active)

		pause(100 * time.Millisecond)
		s.Update(&gpb.NodeReport{InFlight: proto.Int64(4), LaneFreeIn: durationpb.New(10 * time.Second)})
		r, n = w.got()
		require.Equal(t, 2, n, "a change comes at once")
		assert.Equal(t, 4, r.Load.Active)
		assert.Equal(t, 10*time.Second, r.Load.LaneFree)
		assert.Empty(t, r.Models)
		assert.False(t, r.Complete)

		pause(time.Second)
		r, n = w.got()
		assert.Equal(t, 6, n, "one per interval where nothing changes")
		assert.Equal(t, 9*time.Second, r.Load.LaneFree)
		assert.Zero(t, r.Age)

		w.cancel()
		assert.Equal(t, codes.Canceled, status.Code(w.end()))
	})
}

// What the source asks for.
func TestSourceRequest(t *testing.T) {
	for name, tc := range map[string]struct {
		interval time.Duration
		asked    *durationpb.Duration
		want     time.Duration
	}{
		"none":      {0, nil, time.Second},
		"own":       {3 * time.Second, durationpb.New(3 * time.Second), 3 * time.Second},
		"too short": {time.Millisecond, durationpb.New(time.Millisecond), 10 * time.Millisecond},
		"too long":  {time.Hour, durationpb.New(time.Hour), time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := make(chan *gpb.WatchRequest, 1)
				cc, _ := dial(t, scripted{watch: func(req *gpb.WatchRequest, stream reports) error {
					asked <- req
					assert.NoError(t, stream.Send(&gpb.NodeReport{}))
					<-stream.Context().Done()
					return nil
				}}.register)
				w := watch(t, cc, tc.interval)
				r, n := w.got()
				require.Equal(t, 1, n)
				assert.Equal(t, tc.want, r.Interval, "what a server keeps to")
				req := <-asked
				assert.True(t, proto.Equal(tc.asked, req.GetInterval()))
				assert.Empty(t, req.GetModels())
				assert.Equal(t, minChange, req.GetMinChange())
			})
		})
	}
}

// A watch for some models only does not say what else there is.
func TestWatchConnWithModels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := server.New(server.Options{})
		s.Update(fifty(false))
		cc, _ := dial(t, s.Register)
		ctx, cancel := context.WithCancel(t.Context())
		var got []health.Model
		err := WatchConn(ctx, cc, &gpb.WatchRequest{Models: []string{"model-003", "x"}}, func(r *health.Report) {
			assert.False(t, r.Complete)
			assert.Equal(t, 3, r.Load.Active)
			got = append(got, r.Models...)
			cancel()
		})
		assert.Equal(t, codes.Canceled, status.Code(err))
		assert.Equal(t, []health.Model{{Name: "model-003", State: health.ModelReady, Service: 250 * time.Millisecond}}, got)
	})
}

// How a watch ends decides whether the server is asked again.
func TestSourceEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		register func(grpc.ServiceRegistrar)
		want     codes.Code
		says     string
	}{
		"a server without the service": {func(grpc.ServiceRegistrar) {}, codes.Unimplemented, "unknown service"},
		"a service without the method": {func(r grpc.ServiceRegistrar) {
			gpb.RegisterGPUStatsServer(r, gpb.UnimplementedGPUStatsServer{})
		}, codes.Unimplemented, "not implemented"},
		"a server that refuses": {scripted{watch: func(*gpb.WatchRequest, reports) error {
			return status.Error(codes.PermissionDenied, "not you")
		}}.register, codes.PermissionDenied, "not you"},
		"a server that ends well": {scripted{watch: func(_ *gpb.WatchRequest, s reports) error {
			return s.Send(&gpb.NodeReport{})
		}}.register, codes.Unavailable, "the server ended the watch"},
		"a server that is closed": {func(r grpc.ServiceRegistrar) {
			s := server.New(server.Options{})
			s.Close()
			s.Register(r)
		}, codes.Unavailable, "ends its watches"},
		"a report without end": {scripted{watch: func(_ *gpb.WatchRequest, s reports) error {
			return s.Send(&gpb.NodeReport{Gpus: []*gpb.GPU{{Uuid: proto.String(string(make([]byte, maxMessage)))}}})
		}}.register, codes.ResourceExhausted, "larger than max"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cc, _ := dial(t, tc.register)
				err := watch(t, cc, time.Second).end()
				assert.Equal(t, tc.want, status.Code(err))
				assert.ErrorContains(t, err, tc.says)
			})
		})
	}
}

func TestSourceWithoutConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, stop := dial(t, server.New(server.Options{}).Register)
		w := watch(t, cc, time.Second)
		_, n := w.got()
		require.Equal(t, 1, n)
		stop()
		assert.Equal(t, codes.Unavailable, status.Code(w.end()))
		assert.Equal(t, codes.Unavailable, status.Code(watch(t, cc, time.Second).end()))
	})
}

// A server that says nothing is left after a while, at its first report as at any later one.
func TestSourceWithSilentServer(t *testing.T) {
	for name, tc := range map[string]struct {
		reports  int
		interval time.Duration
		want     time.Duration
	}{
		"from the start":        {0, time.Second, 10 * time.Second},
		"after some":            {3, time.Second, 13 * time.Second},
		"with a long interval":  {0, 30 * time.Second, 300 * time.Second},
		"with a short interval": {0, 100 * time.Millisecond, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cc, _ := dial(t, scripted{watch: func(_ *gpb.WatchRequest, s reports) error {
					for range tc.reports {
						time.Sleep(time.Second)
						assert.NoError(t, s.Send(&gpb.NodeReport{}))
					}
					<-s.Context().Done()
					return nil
				}}.register)
				start := time.Now()
				w := watch(t, cc, tc.interval)
				err := w.end()
				assert.Equal(t, tc.want, time.Since(start))
				assert.Equal(t, codes.Unavailable, status.Code(err))
				assert.ErrorContains(t, err, "no report for")
				_, n := w.got()
				assert.Equal(t, tc.reports, n)
			})
		})
	}
}

// A server that sends without end is read at a bounded rate, and held back meanwhile.
func TestSourceWithFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := 0
		cc, _ := dial(t, scripted{watch: func(_ *gpb.WatchRequest, s reports) error {
			for {
				if err := s.Send(fifty(true)); err != nil {
					return err
				}
				sent++
			}
		}}.register)
		w := watch(t, cc, time.Second)
		pause(time.Second)
		_, n := w.got()
		assert.InDelta(t, 1000, n, 10)
		assert.Less(t, sent, n+1000, "what has not been read stays with the server")
		w.cancel()
		assert.Equal(t, codes.Canceled, status.Code(w.end()))
	})
}

// A server that lies is not believed, and one that starts anew is.
func TestSourceWithLiesAndRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		step := make(chan *gpb.NodeReport)
		cc, _ := dial(t, scripted{watch: func(_ *gpb.WatchRequest, s reports) error {
			for r := range step {
				if err := s.Send(r); err != nil {
					return err
				}
			}
			return errors.New("over")
		}}.register)
		w := watch(t, cc, time.Second)
		step <- &gpb.NodeReport{Sequence: proto.Uint64(100), InFlight: proto.Int64(5), Utilization: proto.Float64(.5)}
		r, _ := w.got()
		assert.Equal(t, health.HasActive|health.HasUtilization, r.Load.Has)
		pause(time.Second)
		step <- &gpb.NodeReport{
			Sequence: proto.Uint64(101), InFlight: proto.Int64(-5), Waiting: proto.Int64(math.MaxInt64),
			Utilization: proto.Float64(math.NaN()), QueueDelay: &durationpb.Duration{Seconds: math.MaxInt64},
		}
		r, _ = w.got()
		assert.Equal(t, health.Load{}, r.Load)
		pause(time.Second)
		step <- &gpb.NodeReport{Sequence: proto.Uint64(1), InFlight: proto.Int64(0)}
		r, n := w.got()
		assert.Equal(t, health.Load{Has: health.HasActive}, r.Load)
		assert.Equal(t, 3, n)
		close(step)
		assert.Equal(t, codes.Unknown, status.Code(w.end()))
	})
}

package orca

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	v3orcapb "github.com/cncf/xds/go/xds/data/orca/v3"
	orcaservicepb "github.com/cncf/xds/go/xds/service/orca/v3"
	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	gorca "google.golang.org/grpc/orca"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer/health"
	"github.com/mlbalancer/mlbalancer/health/monitor"
	"github.com/mlbalancer/mlbalancer/health/monitor/monitortest"
)

// reporter reports a growing number of active calls, as often as it is asked to, some times.
type reporter struct {
	orcaservicepb.UnimplementedOpenRcaServiceServer
	times int
}

func (r *reporter) StreamCoreMetrics(
	req *orcaservicepb.OrcaLoadReportRequest, s grpc.ServerStreamingServer[v3orcapb.OrcaLoadReport],
) error {
	for i := range r.times {
		active := map[string]float64{"mlbalancer.active": float64(i)}
		if err := s.Send(&v3orcapb.OrcaLoadReport{NamedMetrics: active}); err != nil {
			return err
		}
		time.Sleep(req.GetReportInterval().AsDuration())
	}
	return nil
}

func watch(t *testing.T, register func(*grpc.Server), d time.Duration) (*monitortest.Record, error) {
	conn := monitortest.Serve(t, register)
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	r := &monitortest.Record{}
	err := source{}.Watch(ctx, conn, &monitor.Options{Interval: 2 * time.Second}, r.Add)
	return r, err
}

func TestWatchReportsAtTheInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		r, err := watch(t, func(s *grpc.Server) { orcaservicepb.RegisterOpenRcaServiceServer(s, &reporter{times: 5}) }, time.Hour)
		assert.Equal(t, codes.Unavailable, status.Code(err), "a stream does not end by the server's will")
		assert.Equal(t, 10*time.Second, time.Since(start))
		assert.Equal(t, 5, r.Now().Reports)
		assert.Equal(t, health.Report{
			Load: health.Load{Has: health.HasActive, Active: 4}, Interval: 2 * time.Second,
		}, r.Now().Report)
	})
}

// gRPC's own service.
func TestWatchReadsWhatGRPCWrites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := gorca.NewServerMetricsRecorder()
		m.SetApplicationUtilization(0.5)
		m.SetNamedUtilization("mlbalancer.gpu_memory_free", 0.25)
		r, err := watch(t, func(s *grpc.Server) {
			assert.NoError(t, gorca.Register(s, gorca.ServiceOptions{ServerMetricsProvider: m}))
		}, 45*time.Second)
		assert.Error(t, err)
		assert.Equal(t, 2, r.Now().Reports, "one each 30 s")
		assert.Equal(t, health.Load{
			Has: health.HasUtilization | health.HasMemoryFree, Utilization: 0.5, MemoryFree: 0.25,
		}, r.Now().Report.Load)
	})
}

func TestWatchOfAServerWithoutTheService(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, err := watch(t, nil, time.Hour)
		assert.Equal(t, codes.Unimplemented, status.Code(err))
		assert.Zero(t, r.Now().Reports)
	})
}

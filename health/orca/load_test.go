package orca

import (
	"math"
	"testing"
	"time"

	v3orcapb "github.com/cncf/xds/go/xds/data/orca/v3"
	"github.com/stretchr/testify/assert"

	"github.com/mlbalancer/mlbalancer/health"
)

func TestLoad(t *testing.T) {
	t.Parallel()
	type metrics = map[string]float64
	for name, c := range map[string]struct {
		report *v3orcapb.OrcaLoadReport
		want   health.Load
	}{
		"nothing": {report: &v3orcapb.OrcaLoadReport{}},
		"cpu": {
			&v3orcapb.OrcaLoadReport{CpuUtilization: 0.5},
			health.Load{Has: health.HasUtilization, Utilization: 0.5},
		},
		"application before cpu": {
			&v3orcapb.OrcaLoadReport{CpuUtilization: 0.5, ApplicationUtilization: 1.5},
			health.Load{Has: health.HasUtilization, Utilization: 1.5},
		},
		"application out of range": {
			&v3orcapb.OrcaLoadReport{CpuUtilization: 0.5, ApplicationUtilization: math.NaN()},
			health.Load{Has: health.HasUtilization, Utilization: 0.5},
		},
		"all of ours": {
			&v3orcapb.OrcaLoadReport{NamedMetrics: metrics{
				"mlbalancer.active": 3, "mlbalancer.waiting": 1, "mlbalancer.workers": 4, "mlbalancer.connections": 5,
				"mlbalancer.queue_delay_seconds": 0.25, "mlbalancer.lane_free_seconds": 2, "mlbalancer.load_seconds": 30,
				"mlbalancer.gpu_memory_free": 0.75,
			}},
			health.Load{
				Has: health.HasActive | health.HasWaiting | health.HasWorkers | health.HasConnections | health.HasQueueDelay |
					health.HasLaneFree | health.HasLoadTime | health.HasMemoryFree,
				Active: 3, Waiting: 1, Workers: 4, Connections: 5, QueueDelay: 250 * time.Millisecond, LaneFree: 2 * time.Second,
				LoadTime: 30 * time.Second, MemoryFree: 0.75,
			},
		},
		"zero is known": {
			&v3orcapb.OrcaLoadReport{NamedMetrics: metrics{"mlbalancer.active": 0, "mlbalancer.gpu_memory_free": 0}},
			health.Load{Has: health.HasActive | health.HasMemoryFree},
		},
		"a share among the utilizations": {
			&v3orcapb.OrcaLoadReport{Utilization: metrics{"mlbalancer.gpu_memory_free": 0.5, "mlbalancer.active": 1}},
			health.Load{Has: health.HasMemoryFree, MemoryFree: 0.5},
		},
		"an engine": {
			&v3orcapb.OrcaLoadReport{NamedMetrics: metrics{"num_requests_running": 7, "num_requests_waiting": 2}},
			health.Load{Has: health.HasActive | health.HasWaiting, Active: 9, Waiting: 2},
		},
		"an engine that does not say what waits": {
			report: &v3orcapb.OrcaLoadReport{NamedMetrics: metrics{"num_requests_running": 7}},
		},
		"an engine that says what waits": {
			&v3orcapb.OrcaLoadReport{NamedMetrics: metrics{"num_requests_waiting": 2}},
			health.Load{Has: health.HasWaiting, Waiting: 2},
		},
		"ours before an engine's": {
			&v3orcapb.OrcaLoadReport{NamedMetrics: metrics{
				"mlbalancer.active": 1, "num_requests_running": 7, "num_requests_waiting": 2,
			}},
			health.Load{Has: health.HasActive | health.HasWaiting, Active: 1, Waiting: 2},
		},
		"what has no meaning here": {
			report: &v3orcapb.OrcaLoadReport{
				MemUtilization: 0.5, RpsFractional: 3, Eps: 1, RequestCost: metrics{"mlbalancer.active": 1},
				NamedMetrics: metrics{"kv_cache_utilization": 0.9, "kv_cache_usage_perc": 0.9, "else": 1},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := health.Load{Has: health.HasVictim, VictimModel: 7}
			assert.Equal(t, c.want.Has != 0, Load(c.report, &got))
			assert.Equal(t, c.want, got)
		})
	}
}

func TestLoadBelievesNoNonsense(t *testing.T) {
	t.Parallel()
	names := []string{
		"mlbalancer.active", "mlbalancer.waiting", "mlbalancer.workers", "mlbalancer.connections", "mlbalancer.gpu_memory_free",
		"mlbalancer.queue_delay_seconds", "mlbalancer.lane_free_seconds", "mlbalancer.load_seconds",
		"num_requests_waiting", "num_requests_running",
	}
	for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, -1e-9, 1e18, math.MaxFloat64} {
		r := &v3orcapb.OrcaLoadReport{
			CpuUtilization: x, ApplicationUtilization: x, NamedMetrics: map[string]float64{}, Utilization: map[string]float64{},
		}
		for _, name := range names {
			r.NamedMetrics[name], r.Utilization[name] = x, x
		}
		var l health.Load
		assert.False(t, Load(r, &l), "%v: %+v", x, l)
		assert.Equal(t, health.Load{}, l, "%v", x)
	}
	for name, x := range map[string]float64{"mlbalancer.workers": 0.5, "mlbalancer.gpu_memory_free": 75} {
		var l health.Load
		assert.False(t, Load(&v3orcapb.OrcaLoadReport{NamedMetrics: map[string]float64{name: x}}, &l), name)
	}
}

func TestLoadTakesAnything(t *testing.T) {
	t.Parallel()
	for _, v := range []any{nil, (*v3orcapb.OrcaLoadReport)(nil), "load", 1} {
		l := health.Load{Has: health.HasActive}
		assert.False(t, Load(v, &l))
		assert.Equal(t, health.Load{}, l)
	}
}

func full() any {
	return &v3orcapb.OrcaLoadReport{CpuUtilization: 1, NamedMetrics: map[string]float64{
		"mlbalancer.active": 3, "mlbalancer.waiting": 1, "mlbalancer.workers": 4, "mlbalancer.gpu_memory_free": 0.75,
		"num_requests_running": 7, "num_requests_waiting": 2, "else": 1,
	}}
}

func TestLoadDoesNotAllocate(t *testing.T) {
	v, l := full(), new(health.Load)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		if !Load(v, l) {
			t.Error("nothing read")
		}
	}))
}

func BenchmarkLoad(b *testing.B) {
	v, l := full(), new(health.Load)
	for b.Loop() {
		Load(v, l)
	}
}

package orca

import (
	"time"

	v3orcapb "github.com/cncf/xds/go/xds/data/orca/v3"

	"github.com/mlbalancer/mlbalancer/health"
)

// The largest numbers that are believed. What is larger, negative or not a number counts as not said.
const (
	maxCount       = 1e9
	maxUtilization = 1e3
	maxSeconds     = 24 * 60 * 60
)

// Load reads a load report, as balancer.DoneInfo.ServerLoad holds it, into l, and reports whether it says anything of use;
// whatever else l held is gone. v may be anything. It allocates nothing and keeps nothing of v.
//
// Utilization is application_utilization, or cpu_utilization where that is not set, as in gRFC A58. The rest has names among
// named_metrics; those of shares are looked for in utilization too:
//
//	mlbalancer.active               Active
//	mlbalancer.waiting              Waiting
//	mlbalancer.workers              Workers, at least 1
//	mlbalancer.connections          Connections
//	mlbalancer.queue_delay_seconds  QueueDelay
//	mlbalancer.lane_free_seconds    LaneFree
//	mlbalancer.load_seconds         LoadTime
//	mlbalancer.gpu_memory_free      MemoryFree, from 0 to 1; also in utilization
//	num_requests_waiting            Waiting, as vLLM names it, where mlbalancer.waiting is not there
//	num_requests_running            with num_requests_waiting: Active is the sum of both, where mlbalancer.active is not there
//
// Not read are kv_cache_utilization and its like (that memory is set aside beforehand, so a full cache is no lack of it, and it fills
// with what has been asked rather than with what is being worked on), mem_utilization (the host's memory), rates, and the costs of a
// single request.
func Load(v any, l *health.Load) bool {
	*l = health.Load{}
	r, ok := v.(*v3orcapb.OrcaLoadReport)
	if !ok || r == nil {
		return false
	}
	for _, u := range [...]float64{r.CpuUtilization, r.ApplicationUtilization} {
		if u > 0 && within(u, maxUtilization) {
			l.Utilization, l.Has = u, health.HasUtilization
		}
	}
	if len(r.NamedMetrics) > 0 {
		named(r.NamedMetrics, l)
	}
	free, ok := r.NamedMetrics["mlbalancer.gpu_memory_free"]
	if !ok {
		free, ok = r.Utilization["mlbalancer.gpu_memory_free"]
	}
	if ok && within(free, 1) {
		l.MemoryFree, l.Has = free, l.Has|health.HasMemoryFree
	}
	return l.Has != 0
}

// within reports whether x is a number from 0 to most.
func within(x, most float64) bool { return x >= 0 && x <= most }

// named reads what has a name.
func named(m map[string]float64, l *health.Load) {
	if n, ok := count(m, "mlbalancer.active"); ok {
		l.Active, l.Has = n, l.Has|health.HasActive
	}
	if n, ok := count(m, "mlbalancer.waiting"); ok {
		l.Waiting, l.Has = n, l.Has|health.HasWaiting
	}
	if n, ok := count(m, "mlbalancer.workers"); ok && n > 0 {
		l.Workers, l.Has = n, l.Has|health.HasWorkers
	}
	if n, ok := count(m, "mlbalancer.connections"); ok {
		l.Connections, l.Has = n, l.Has|health.HasConnections
	}
	if d, ok := seconds(m, "mlbalancer.queue_delay_seconds"); ok {
		l.QueueDelay, l.Has = d, l.Has|health.HasQueueDelay
	}
	if d, ok := seconds(m, "mlbalancer.lane_free_seconds"); ok {
		l.LaneFree, l.Has = d, l.Has|health.HasLaneFree
	}
	if d, ok := seconds(m, "mlbalancer.load_seconds"); ok {
		l.LoadTime, l.Has = d, l.Has|health.HasLoadTime
	}
	engine(m, l)
}

// engine reads what engines for language models say of their requests, unless it is known already.
func engine(m map[string]float64, l *health.Load) {
	waiting, ok := count(m, "num_requests_waiting")
	if !ok {
		return
	}
	if l.Has&health.HasWaiting == 0 {
		l.Waiting, l.Has = waiting, l.Has|health.HasWaiting
	}
	if running, ok := count(m, "num_requests_running"); ok && l.Has&health.HasActive == 0 {
		l.Active, l.Has = running+waiting, l.Has|health.HasActive
	}
}

func count(m map[string]float64, name string) (int, bool) {
	x, ok := m[name]
	if !ok || !within(x, maxCount) {
		return 0, false
	}
	return int(x), true
}

func seconds(m map[string]float64, name string) (time.Duration, bool) {
	x, ok := m[name]
	if !ok || !within(x, maxSeconds) {
		return 0, false
	}
	return time.Duration(x * float64(time.Second)), true
}

// Package orcaload makes servers report their load with each reply, as ORCA (gRFC A51) defines it and weighted_round_robin
// (gRFC A58) reads it: calls per second, and the share of the workers that were busy.
package orcaload

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/orca"
)

// ServerOptions returns the options for servers that run as many calls at once as workers says. Figures are means over the last
// period, at least; they are reported from its end on.
func ServerOptions(workers int, period time.Duration) []grpc.ServerOption {
	var meters sync.Map // of the service's implementation, one for each server
	report := func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		found, ok := meters.Load(info.Server)
		if !ok {
			found, _ = meters.LoadOrStore(info.Server, &meter{workers: workers, period: period, at: time.Now(), since: time.Now()})
		}
		m := found.(*meter)
		m.begin(time.Now())
		resp, err := handler(ctx, req)
		qps, utilization := m.end(time.Now())
		if recorder := orca.CallMetricsRecorderFromContext(ctx); recorder != nil && utilization > 0 {
			recorder.SetQPS(qps)
			recorder.SetApplicationUtilization(utilization)
		}
		return resp, err
	}
	return []grpc.ServerOption{orca.CallMetricsServerOption(nil), grpc.ChainUnaryInterceptor(report)}
}

// meter measures one server.
type meter struct {
	workers int
	period  time.Duration

	mu      sync.Mutex
	running int
	at      time.Time // up to when busy is counted
	since   time.Time // start of the current period
	busy    float64   // worker seconds since then
	done    int       // calls since then

	qps, utilization float64 // of the period before; 0 until there was one
}

func (m *meter) begin(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count(now)
	m.running++
}

func (m *meter) end(now time.Time) (qps, utilization float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count(now)
	m.running--
	m.done++
	if span := now.Sub(m.since); span >= m.period {
		m.qps = float64(m.done) / span.Seconds()
		m.utilization = m.busy / (span.Seconds() * float64(m.workers))
		m.since, m.busy, m.done = now, 0, 0
	}
	return m.qps, m.utilization
}

// count adds the time since it was last called to the workers' busy time.
func (m *meter) count(now time.Time) {
	m.busy += now.Sub(m.at).Seconds() * float64(min(m.running, m.workers))
	m.at = now
}

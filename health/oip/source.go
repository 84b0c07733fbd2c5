package oip

import (
	"context"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"

	"github.com/mlbalancer/mlbalancer/health"
	"github.com/mlbalancer/mlbalancer/health/monitor"
)

const (
	// minInterval is how often a server is asked at most.
	minInterval = 10 * time.Millisecond
	// minTimeout is what each call has at least.
	minTimeout = time.Second
	// jitter is the share of the interval by which polls are early or late, so that a fleet's servers are not polled in step.
	jitter = 0.1
)

func init() { monitor.Register(source{}) }

// source is the monitor.Source.
type source struct{}

// Name implements monitor.Source.
func (source) Name() string { return "oip" }

// Watch implements monitor.Source: it polls the server at once, and then every interval, give or take a tenth of it. Each call
// has the longer of a second and the interval. A server that says that it is not ready, or exits, is polled on; Watch returns the
// status of a call that says neither, as it came.
func (source) Watch(
	ctx context.Context, conn grpc.ClientConnInterface, o *monitor.Options, report func(*health.Report),
) error {
	interval := max(o.Interval, minInterval)
	s := newSession(conn, interval, o.Models)
	ctx = monitor.ProbeContext(ctx)
	for {
		next := time.Now().Add(jittered(interval))
		if err := s.poll(ctx, report); err != nil {
			return err
		}
		if !monitor.Sleep(ctx, time.Until(next)) {
			return ctx.Err()
		}
	}
}

func jittered(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (1 - jitter + 2*jitter*rand.Float64()))
}

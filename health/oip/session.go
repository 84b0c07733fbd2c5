package oip

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/mlbalancer/mlbalancer/health"
)

// way is how a server lets its models be known.
type way uint8

// The ways, in the order in which they are tried.
const (
	byStatistics way = iota
	byIndex          // Triton's
	byModelIndex     // MLServer's, in a service of its own
	byModelReady
	byNone
)

// session is what is kept of one connection. It is not safe for concurrent use.
type session struct {
	conn     grpc.ClientConnInterface
	interval time.Duration
	timeout  time.Duration // of each call
	inUse    func() []string

	way    way
	turn   int  // where in the models in use ModelReady goes on
	denied bool // ModelReady has said of a model that it is not ready

	// Used again for each poll.
	report     health.Report
	call       call
	ready      readiness
	statistics statistics
	index      index
}

func newSession(conn grpc.ClientConnInterface, interval time.Duration, inUse func() []string) *session {
	return &session{conn: conn, interval: interval, timeout: max(interval, minTimeout), inUse: inUse}
}

// poll asks once for everything, and reports what is known, also if an error cuts it short.
func (s *session) poll(ctx context.Context, report func(*health.Report)) error {
	s.report = health.Report{Models: s.report.Models[:0], Interval: s.interval}
	state, err := s.server(ctx)
	if err != nil {
		return err
	}
	if state != health.ServerDraining {
		err = s.models(ctx)
	}
	if later, said := serverState(err); said { // it has changed since it was asked
		state, err = later, nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s.report.Server = state
	report(&s.report)
	return err
}

// server asks how the server as a whole is.
func (s *session) server(ctx context.Context) (health.ServerState, error) {
	err := s.invoke(ctx, methodServerReady, request{}, &s.ready)
	if state, said := serverState(err); said {
		return state, nil
	}
	switch {
	case err != nil:
		return health.ServerUnknown, err
	case s.ready.ready:
		return health.ServerReady, nil
	}
	return health.ServerNotReady, nil
}

// models adds to the report what is known of models, by the first way that the server offers.
func (s *session) models(ctx context.Context) error {
	for ; s.way < byNone; s.way++ {
		if err := s.modelsBy(ctx, s.way); err == nil || !refused(err) {
			return err
		}
	}
	return nil
}

func (s *session) modelsBy(ctx context.Context, w way) error {
	switch w {
	case byStatistics:
		err := s.invoke(ctx, methodStatistics, request{}, &s.statistics)
		if err == nil {
			s.statistics.fill(&s.report)
		}
		return err
	case byIndex:
		return s.indexFrom(ctx, methodIndex)
	case byModelIndex:
		return s.indexFrom(ctx, methodModelIndex)
	default:
		return s.modelsInUse(ctx)
	}
}

func (s *session) indexFrom(ctx context.Context, method string) error {
	err := s.invoke(ctx, method, request{}, &s.index)
	if err == nil {
		s.index.fill(&s.report)
	}
	return err
}

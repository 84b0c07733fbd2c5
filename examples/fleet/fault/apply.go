package fault

import (
	"google.golang.org/grpc/codes"

	"github.com/mlbalancer/mlbalancer/internal/fleet"
)

// Begin makes the fault, one of Steps, happen to its server.
func (f Fault) Begin(servers []*fleet.Server) error {
	s := servers[f.Server]
	switch f.Kind {
	case "slow":
		s.Slow(f.Factor)
	case "fail":
		s.Fail(codes.Unavailable, "the server was told to fail", f.Factor)
	case "hang":
		s.Hang(true)
	case "kill":
		s.Kill()
	case "stop":
		s.GracefulStop()
	case "drain":
		s.Drain()
	case "restart":
		if f.Lasts() {
			return s.Restart()
		}
		s.Kill()
	case "broken-model":
		s.FailModel(f.Model, codes.Internal, "the model was told to fail", 1)
	case "stall":
		s.Stall(f.Signals, true)
	case "mute":
		s.Mute(f.Signals, true)
	case "lie-idle":
		s.Lie(f.Signals, fleet.Idle)
	case "lie-busy":
		s.Lie(f.Signals, fleet.Busy)
	case "lie-empty":
		s.Lie(f.Signals, fleet.Empty)
	case "not-ready":
		s.NotReady(true)
	}
	return nil
}

// End makes the server work again.
func (f Fault) End(servers []*fleet.Server) error {
	s := servers[f.Server]
	switch f.Kind {
	case "slow":
		s.Slow(1)
	case "fail":
		s.Fail(codes.OK, "", 0)
	case "hang":
		s.Hang(false)
	case "broken-model":
		s.FailModel(f.Model, codes.OK, "", 0)
	case "stall":
		s.Stall(f.Signals, false)
	case "mute":
		s.Mute(f.Signals, false)
	case "lie-idle", "lie-busy", "lie-empty":
		s.Lie(f.Signals, fleet.Truth)
	case "not-ready":
		s.NotReady(false)
	case "kill", "stop", "drain", "restart":
		return s.Restart()
	}
	return nil
}

package fleet

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Signals is a set of the ways in which servers tell clients how they are. Its zero value is the empty set, except in Config.
type Signals uint8

const (
	// Health is grpc.health.v1: Check and Watch, or Check alone with Config.NoWatch.
	Health Signals = 1 << iota
	// OIP is what inference.GRPCInferenceService says of server and models: ServerLive, ServerReady, ModelReady, ModelStatistics and
	// RepositoryIndex. The rest of the service, metadata and explicit loads included, is there in any case.
	OIP
	// ORCA is a load report (gRFC A51) in the trailer of each inference call: utilization and calls per second, both over the last
	// second of model time, and the named metrics mlbalancer.active, .waiting, .workers, .connections, .gpu_memory_free (0 to 1),
	// .queue_delay_seconds, .lane_free_seconds and .load_seconds, in wall-clock time.
	ORCA
	// GPUStats is mlbalancer.gpustats.v1: what the server does, its memory and its models, on a stream or on request, in
	// wall-clock time.
	GPUStats
	// NoSignals in Config.Signals makes servers that say nothing of themselves. It is no signal.
	NoSignals
)

// signalNames are the names of the signals, in order of their bits.
var signalNames = [...]string{"health", "oip", "orca", "gpustats"}

// ParseSignals reads a comma-separated list of "health", "oip", "orca" and "gpustats", or "none". The result is never the zero
// value.
func ParseSignals(list string) (Signals, error) {
	if list == "none" {
		return NoSignals, nil
	}
	var set Signals
next:
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		for i, known := range signalNames {
			if name == known {
				set |= 1 << i
				continue next
			}
		}
		return 0, fmt.Errorf("signal is %q, want some of %s, or none alone", name, strings.Join(signalNames[:], ", "))
	}
	return set, nil
}

// String returns the set as ParseSignals reads it.
func (s Signals) String() string {
	var names []string
	for i, name := range signalNames {
		if s&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ",")
}

// errSilent is what a client is told that asks for a signal which the server does not have.
var errSilent = status.Error(codes.Unimplemented, "unknown service or method")

// speaks reports whether the server has a signal now.
func (s *Server) speaks(signal Signals) bool {
	return s.cfg.Signals&signal != 0 && s.faults.muted&signal == 0
}

// tell runs f, under the server's lock, for a client that asks for a signal. It fails with UNIMPLEMENTED if the server does not
// have the signal, and waits while it is stalled.
func (s *Server) tell(ctx context.Context, signal Signals, f func() error) error {
	for {
		var changed, stopping <-chan struct{}
		var err error
		s.update(func() {
			switch {
			case !s.speaks(signal):
				err = errSilent
			case s.faults.stalled&signal != 0:
				changed, stopping = s.changed, s.stopping
			default:
				err = f()
			}
		})
		if changed == nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-stopping:
			return errExiting
		}
	}
}

// told returns the models as a signal tells of them: all that the server was ever asked for, or none if that is its lie.
func (s *Server) told(signal Signals) map[string]*model {
	if s.faults.lies[Empty]&signal != 0 {
		return nil
	}
	return s.gpu.models
}

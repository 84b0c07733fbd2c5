package balancer

import (
	"time"

	"github.com/mlbalancer/mlbalancer/health"
	"github.com/mlbalancer/mlbalancer/health/monitor"
	"github.com/mlbalancer/mlbalancer/picker"
)

// HealthState is what is known of an endpoint's health beside its breaker.
type HealthState struct {
	// Server is what follows from all that is said of the server as a whole: "ready", "not ready", "starting" (not ready, and not seen ready since
	// it was connected), "draining", or "unhealthy" for its score. A server that is not ready may serve models that are.
	Server string `json:"server"`
	// Sources are those that have said something and have not taken it back, with what they say of the server as a whole.
	Sources map[string]string `json:"sources,omitempty"`
	// Score is from 0, bad, to 1.
	Score float64 `json:"score"`
	// Parts are the signals that the score is made of, each from 0 to 1.
	Parts health.Parts `json:"parts"`
	// SlowStart is the share of its usual traffic that the endpoint gets while it is new, 1 otherwise.
	SlowStart float64 `json:"slow_start"`
	// Reported is how old the server's last report of its load is, 0 if there is none; Load is that.
	Reported time.Duration `json:"reported_ns,omitempty"`
	Load     *health.Load  `json:"load,omitempty"`
}

func readHealth(e *picker.Endpoint, now int64) HealthState {
	h := e.Health()
	s := HealthState{Server: h.Server, Score: h.Score, Parts: h.Parts, SlowStart: e.Ramp(now)}
	for i, name := range monitor.Names() {
		if state, ok := h.Said(i); ok {
			if s.Sources == nil {
				s.Sources = map[string]string{}
			}
			s.Sources[name] = state.String()
		}
	}
	if load, age := e.Facts(now); load.Has != 0 {
		s.Load, s.Reported = &load, age
	}
	return s
}

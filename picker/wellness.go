package picker

import "github.com/mlbalancer/mlbalancer/health"

// Health is what is known of an endpoint's health beside its breaker, for people to read.
type Health struct {
	// Server is what follows from all that is said of the server: "ready", "not ready", "starting", "draining" or "unhealthy".
	Server string
	// Score is from 0 to 1, and Parts what it is made of.
	Score float64
	Parts health.Parts

	usable bool
	said   [health.MaxSources]health.ServerState
	known  [health.MaxSources]bool
}

// Usable reports whether the endpoint takes calls for some models at least.
func (h *Health) Usable() bool { return h.usable }

// Said returns what a source says of the server, by its number, and whether it has said anything that counts.
func (h *Health) Said(source int) (health.ServerState, bool) { return h.said[source], h.known[source] }

// Health returns what is known of the endpoint's health. It takes a lock, which picks do not.
func (e *Endpoint) Health() Health {
	s := e.stands()
	h := Health{Server: "ready", Score: e.score.Value(), Parts: e.score.Parts(), usable: e.well()}
	switch {
	case s&leaving != 0:
		h.Server = "draining"
	case s&starting != 0:
		h.Server = "starting"
	case s&notReady != 0:
		h.Server = "not ready"
	case s&ailing != 0:
		h.Server = "unhealthy"
	}
	e.reports.mu.Lock()
	defer e.reports.mu.Unlock()
	for i, w := range e.reports.sources {
		h.said[i], h.known[i] = w.server, w.until != 0
	}
	return h
}

// Ramp returns the share of its usual traffic that the endpoint gets while it is new or has just recovered, and 1 otherwise.
func (e *Endpoint) Ramp(now int64) float64 { return min(1, e.ramp(now)) }

// Package breakers watches the circuit breakers of a replay's channels: what they did and why, and how many calls went to an endpoint in
// spite of them.
package breakers

// Record is what the breakers of all channels did. Times are in milliseconds of model time since the measured part began; what is
// below 0 is of the passes before.
type Record struct {
	// Changes are in order of time.
	Changes []Change `json:"changes"`
	// Drains are the times in which an endpoint was known to be going away, as exactly as polling sees them.
	Drains []Drain `json:"drains,omitempty"`
	// Opened has an entry for each endpoint of a channel whose breaker left the closed state.
	Opened []Opened `json:"opened"`
	// Totals are the sums of Opened.
	Totals Totals `json:"totals"`
}

// Change is one change of a breaker.
type Change struct {
	At      float64 `json:"at_ms"`
	Channel int     `json:"channel"`
	Server  int     `json:"server"`
	// Model is the model if it is the breaker of one on the server, else empty.
	Model  string `json:"model,omitempty"`
	From   string `json:"from"`
	To     string `json:"to"`
	Reason string `json:"reason"`
}

// Drain is a time in which a channel knew that a server was going away.
type Drain struct {
	Channel int     `json:"channel"`
	Server  int     `json:"server"`
	From    float64 `json:"from_ms"`
	To      float64 `json:"to_ms"`
}

// Opened is what the breaker of one endpoint let through.
type Opened struct {
	Channel int `json:"channel"`
	Server  int `json:"server"`
	Totals
}

// Totals are counts of attempts to send a call.
type Totals struct {
	// Trips is how often a breaker opened that was closed.
	Trips int `json:"trips"`
	// InFlight is how many attempts were on their way to the endpoint at those moments, beside those whose ends opened it.
	InFlight int `json:"in_flight_at_trips"`
	// Probes is how many went there as probes.
	Probes int `json:"probes"`
	// Failed is how many failed there in the measured part.
	Failed int `json:"failed_attempts"`
}

func (t *Totals) add(o Totals) {
	t.Trips += o.Trips
	t.InFlight += o.InFlight
	t.Probes += o.Probes
	t.Failed += o.Failed
}

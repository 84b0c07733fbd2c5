package balancer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mlbalancer/mlbalancer/breaker"
	"github.com/mlbalancer/mlbalancer/health"
	"github.com/mlbalancer/mlbalancer/health/monitor"
	"github.com/mlbalancer/mlbalancer/internal/strictjson"
)

// HealthConfig says how endpoints' health is found out, and how it counts. Start from DefaultHealth.
type HealthConfig struct {
	// Sources names what is asked of each server about its health, over the connection that calls go over: "standard" is
	// grpc.health.v1, "oip" the readiness, repository and statistics calls of the Open Inference Protocol, "gpustats" the stream
	// mlbalancer.gpustats.v1, and "orca" the load reports that ride on responses or come in a stream. A server that lacks one of
	// them is no worse for it. Nil means all that the program has, an empty list none.
	Sources []string `json:"sources,omitzero"`
	// GPUStatsPort is where the stream mlbalancer.gpustats.v1 is asked for, on the host of each endpoint's first address, as with a sidecar of a server
	// that has not got it itself. The connection is made with the channel's transport credentials, dialer and authority; credentials of calls, those of
	// probes included, do not go along. 0, the default, is the connection that calls go over.
	GPUStatsPort int `json:"gpustatsPort,omitempty"`
	// Interval is how often a server is asked where it has to be, and how often it is to report at least where it does so by
	// itself; from 10 ms to an hour, default 1 s.
	Interval breaker.Duration `json:"interval"`
	// StaleAfter is how old what a server said of itself may be and count; three times the interval of its source at least. Above
	// 0, at most 10 min, default 5 s.
	StaleAfter breaker.Duration `json:"staleAfter"`
	// Weights say how much each signal counts in the score of an endpoint, relative to the sum of those that exist.
	Weights ScoreWeights `json:"weights"`
	// EnterUnhealthy and LeaveUnhealthy are the scores, 0 to 1, below which an endpoint is out, and from which on it is in again.
	// The former is less than the latter. Defaults 0.2 and 0.4.
	EnterUnhealthy float64 `json:"enterUnhealthy"`
	LeaveUnhealthy float64 `json:"leaveUnhealthy"`
	// MinDwell is the time between two such changes at least, up to 10 min; default 3 s.
	MinDwell breaker.Duration `json:"minDwell"`
	// PanicThreshold is the share of the connected endpoints, 0 to 1, that must be usable. When fewer are, open breakers, drains and
	// bad health are ignored, since sending all calls to the few that are left would break them too; only servers that have not been
	// ready since they were connected stay out. 0 never ignores them. Default 0.5.
	PanicThreshold float64 `json:"panicThreshold"`
}

// ScoreWeights are the weights of the signals of a score, each from 0 to 1,000, and not all 0.
type ScoreWeights struct {
	Errors      float64 `json:"errors"`      // the share of calls that fail; default 0.4
	Latency     float64 `json:"latency"`     // the latency that is usual against that of now; default 0.3
	GPUMemory   float64 `json:"gpuMemory"`   // the share of GPU memory that is free; default 0.2
	Connections float64 `json:"connections"` // how many calls are open on the server; default 0.1
}

// DefaultHealth returns a HealthConfig with each field at its default, and all sources.
func DefaultHealth() *HealthConfig {
	d := health.DefaultConfig()
	return &HealthConfig{
		Interval:       breaker.Duration(time.Second),
		StaleAfter:     breaker.Duration(d.StaleAfter),
		Weights:        ScoreWeights(d.Weights),
		EnterUnhealthy: d.EnterUnhealthy,
		LeaveUnhealthy: d.LeaveUnhealthy,
		MinDwell:       breaker.Duration(d.MinDwell),
		PanicThreshold: 0.5,
	}
}

// score returns the rules of scores.
func (h *HealthConfig) score() health.Config {
	return health.Config{
		Weights:        health.Weights(h.Weights),
		EnterUnhealthy: h.EnterUnhealthy,
		LeaveUnhealthy: h.LeaveUnhealthy,
		MinDwell:       time.Duration(h.MinDwell),
		StaleAfter:     time.Duration(h.StaleAfter),
	}
}

const (
	minInterval = breaker.Duration(10 * time.Millisecond)
	maxInterval = breaker.Duration(time.Hour)
)

func (h *HealthConfig) check() error {
	names := monitor.Names()
	for i, s := range h.Sources {
		path := fmt.Sprintf("health.sources[%d]", i)
		if !slices.Contains(names, s) {
			return &strictjson.Error{Path: path, Got: quote(s), Want: "one of " + strings.Join(names, ", ")}
		}
		if slices.Contains(h.Sources[:i], s) {
			return &strictjson.Error{Path: path, Got: quote(s) + " a second time", Want: "each source once"}
		}
	}
	if h.Interval < minInterval || h.Interval > maxInterval {
		return &strictjson.Error{Path: "health.interval", Got: h.Interval.String(), Want: "0.01s to 3600s"}
	}
	if h.GPUStatsPort < 0 || h.GPUStatsPort > 65535 {
		return &strictjson.Error{Path: "health.gpustatsPort", Got: fmt.Sprint(h.GPUStatsPort), Want: "0 to 65535"}
	}
	if p := h.PanicThreshold; !(p >= 0 && p <= 1) {
		return &strictjson.Error{Path: "health.panicThreshold", Got: fmt.Sprint(p), Want: "0 to 1"}
	}
	c := h.score()
	var bad *health.FieldError
	if err := c.Validate(); errors.As(err, &bad) {
		return &strictjson.Error{Path: "health." + bad.Field, Got: bad.Got, Want: bad.Want}
	}
	return nil
}

// asks reports whether a source is to be asked.
func (h *HealthConfig) asks(source string) bool {
	return h.Sources == nil || slices.Contains(h.Sources, source)
}

// asksLike reports whether servers are asked the same, the same way. The rest is looked up when it is needed.
func (h *HealthConfig) asksLike(o *HealthConfig) bool {
	all := slices.Equal(h.Sources, o.Sources) && (h.Sources == nil) == (o.Sources == nil)
	return all && h.Interval == o.Interval && h.GPUStatsPort == o.GPUStatsPort
}

// SlowStartConfig says how endpoints that are new get their share of the traffic: those that join others, and those that could
// not be connected to before.
type SlowStartConfig struct {
	// Window is how long it takes until they get all of it, up to an hour; 0 gives it to them at once. Default 30 s.
	Window breaker.Duration `json:"window"`
}

// DefaultSlowStart returns a SlowStartConfig with each field at its default.
func DefaultSlowStart() *SlowStartConfig {
	return &SlowStartConfig{Window: breaker.Duration(30 * time.Second)}
}

func (s *SlowStartConfig) check() error {
	if s.Window < 0 || s.Window > maxInterval {
		return &strictjson.Error{Path: "slowStart.window", Got: s.Window.String(), Want: "0s to 3600s"}
	}
	return nil
}

package health

import (
	"fmt"
	"strconv"
	"time"
)

// Config says how the parts of a Score are weighed, and when it makes an endpoint unhealthy. Start from DefaultConfig: zero
// values are not defaults.
type Config struct {
	// Weights are the weights of the parts.
	Weights Weights
	// EnterUnhealthy makes an endpoint unhealthy when its score falls below it; from 0, never, to below LeaveUnhealthy. Default
	// 0.2.
	EnterUnhealthy float64
	// LeaveUnhealthy makes an unhealthy endpoint healthy again when its score reaches it; from above EnterUnhealthy to 1.
	// Default 0.4.
	LeaveUnhealthy float64
	// MinDwell is how long an endpoint stays healthy or unhealthy at least; from 0 to 10 min. Default 3 s.
	MinDwell time.Duration
	// StaleAfter is how old a signal may be: one that is older does not exist. Above 0, at most 10 min. Default 5 s.
	StaleAfter time.Duration
}

// Weights says how much each part of a Score counts, beside the others that are known; each from 0 to 1,000, and not all 0. A
// part of weight 0 is left out.
type Weights struct {
	// Errors is the weight of the share of calls that do not fail. Default 0.4.
	Errors float64
	// Latency is the weight of how long calls take beside what is normal. Default 0.3.
	Latency float64
	// GPUMemory is the weight of the share of GPU memory that is free. Default 0.2.
	GPUMemory float64
	// Connections is the weight of how many calls are open. Default 0.1.
	Connections float64
}

// DefaultConfig returns a Config with each field at its default.
func DefaultConfig() Config {
	return Config{
		Weights:        Weights{Errors: 0.4, Latency: 0.3, GPUMemory: 0.2, Connections: 0.1},
		EnterUnhealthy: 0.2,
		LeaveUnhealthy: 0.4,
		MinDwell:       3 * time.Second,
		StaleAfter:     5 * time.Second,
	}
}

const (
	maxWeight = 1000
	maxTime   = 10 * time.Minute
)

// Validate returns a *FieldError for the first field that is out of range, or nil.
func (c *Config) Validate() error {
	w := &c.Weights
	for _, f := range [...]struct {
		field  string
		weight float64
	}{
		{"weights.errors", w.Errors},
		{"weights.latency", w.Latency},
		{"weights.gpuMemory", w.GPUMemory},
		{"weights.connections", w.Connections},
	} {
		if !(f.weight >= 0 && f.weight <= maxWeight) { // NaN is neither
			return badField(f.field, f.weight, "0 to 1000")
		}
	}
	switch {
	case *w == Weights{}:
		return badField("weights", "all 0", "at least one above 0")
	case !(c.EnterUnhealthy >= 0 && c.EnterUnhealthy <= 1):
		return badField("enterUnhealthy", c.EnterUnhealthy, "0 to 1, and less than leaveUnhealthy")
	case !(c.LeaveUnhealthy > c.EnterUnhealthy && c.LeaveUnhealthy <= 1):
		want := fmt.Sprintf("more than enterUnhealthy (%v), at most 1", c.EnterUnhealthy)
		return badField("leaveUnhealthy", c.LeaveUnhealthy, want)
	case c.MinDwell < 0 || c.MinDwell > maxTime:
		return badField("minDwell", seconds(c.MinDwell), "0s to 600s")
	case c.StaleAfter <= 0 || c.StaleAfter > maxTime:
		return badField("staleAfter", seconds(c.StaleAfter), "more than 0s, at most 600s")
	}
	return nil
}

// FieldError says which field of a Config is wrong, what it holds and what it should hold.
type FieldError struct {
	Field     string // JSON path below the section, such as "weights.errors"
	Got, Want string
}

// Error implements error.
func (e *FieldError) Error() string { return fmt.Sprintf("%s is %s, want %s", e.Field, e.Got, e.Want) }

func badField(field string, got any, want string) error {
	return &FieldError{Field: field, Got: fmt.Sprint(got), Want: want}
}

// seconds returns d as configurations write it.
func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s" }

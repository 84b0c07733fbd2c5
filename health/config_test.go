package health

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDefaultConfigIsValid(t *testing.T) {
	t.Parallel()
	c := DefaultConfig()
	require.NoError(t, c.Validate())
	assert.Equal(t, Config{
		Weights:        Weights{Errors: 0.4, Latency: 0.3, GPUMemory: 0.2, Connections: 0.1},
		EnterUnhealthy: 0.2, LeaveUnhealthy: 0.4, MinDwell: 3 * time.Second, StaleAfter: 5 * time.Second,
	}, c)
}

func TestConfigLimitsAreValid(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config){
		"one weight":    func(c *Config) { c.Weights = Weights{Connections: 1} },
		"great weights": func(c *Config) { c.Weights = Weights{1000, 1000, 1000, 1000} },
		"never":         func(c *Config) { c.EnterUnhealthy = 0 },
		"all the range": func(c *Config) { c.EnterUnhealthy, c.LeaveUnhealthy = 0, 1 },
		"no dwell":      func(c *Config) { c.MinDwell = 0 },
		"long times":    func(c *Config) { c.MinDwell, c.StaleAfter = 10*time.Minute, 10*time.Minute },
		"short times":   func(c *Config) { c.StaleAfter = 1 },
	} {
		c := DefaultConfig()
		change(&c)
		assert.NoError(t, c.Validate(), name)
	}
}

func TestConfigErrors(t *testing.T) {
	t.Parallel()
	nan, inf := math.NaN(), math.Inf(1)
	for _, tt := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.Weights.Errors = -0.1 }, "weights.errors is -0.1, want 0 to 1000"},
		{func(c *Config) { c.Weights.Errors = nan }, "weights.errors is NaN, want 0 to 1000"},
		{func(c *Config) { c.Weights.Latency = inf }, "weights.latency is +Inf, want 0 to 1000"},
		{func(c *Config) { c.Weights.GPUMemory = 1001 }, "weights.gpuMemory is 1001, want 0 to 1000"},
		{func(c *Config) { c.Weights.Connections = -inf }, "weights.connections is -Inf, want 0 to 1000"},
		{func(c *Config) { c.Weights = Weights{} }, "weights is all 0, want at least one above 0"},
		{func(c *Config) { c.EnterUnhealthy = -1 }, "enterUnhealthy is -1, want 0 to 1, and less than leaveUnhealthy"},
		{func(c *Config) { c.EnterUnhealthy = nan }, "enterUnhealthy is NaN, want 0 to 1, and less than leaveUnhealthy"},
		{func(c *Config) { c.LeaveUnhealthy = 0.2 }, "leaveUnhealthy is 0.2, want more than enterUnhealthy (0.2), at most 1"},
		{func(c *Config) { c.LeaveUnhealthy = 1.1 }, "leaveUnhealthy is 1.1, want more than enterUnhealthy (0.2), at most 1"},
		{func(c *Config) { c.LeaveUnhealthy = nan }, "leaveUnhealthy is NaN, want more than enterUnhealthy (0.2), at most 1"},
		{func(c *Config) { c.MinDwell = -time.Millisecond }, "minDwell is -0.001s, want 0s to 600s"},
		{func(c *Config) { c.MinDwell = 601 * time.Second }, "minDwell is 601s, want 0s to 600s"},
		{func(c *Config) { c.StaleAfter = 0 }, "staleAfter is 0s, want more than 0s, at most 600s"},
		{func(c *Config) { c.StaleAfter = time.Hour }, "staleAfter is 3600s, want more than 0s, at most 600s"},
	} {
		c := DefaultConfig()
		tt.change(&c)
		err := c.Validate()
		require.EqualError(t, err, tt.want)
		require.IsType(t, &FieldError{}, err)
	}
}

package balancer

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mlbalancer/mlbalancer/breaker"
	"github.com/mlbalancer/mlbalancer/health"
	"github.com/mlbalancer/mlbalancer/health/monitor"
)

func TestHealthDefaults(t *testing.T) {
	t.Parallel()
	c := DefaultConfig()
	assert.Equal(t, &HealthConfig{
		Interval: breaker.Duration(time.Second), StaleAfter: breaker.Duration(5 * time.Second),
		Weights:        ScoreWeights{Errors: .4, Latency: .3, GPUMemory: .2, Connections: .1},
		EnterUnhealthy: .2, LeaveUnhealthy: .4, MinDwell: breaker.Duration(3 * time.Second), PanicThreshold: .5,
	}, c.Health)
	assert.Equal(t, &SlowStartConfig{Window: breaker.Duration(30 * time.Second)}, c.SlowStart)
	assert.Equal(t, health.DefaultConfig(), c.Health.score())
	for _, js := range []string{`{}`, `{"health":{},"slowStart":{}}`, `{"health":null,"slowStart":null}`} {
		parsed, err := ParseConfig([]byte(js))
		require.NoError(t, err)
		assert.Equal(t, c, parsed, js)
	}
}

// A section that sets one key leaves the others at their defaults.
func TestHealthKeys(t *testing.T) {
	t.Parallel()
	for js, set := range map[string]func(*Config){
		`{"health":{"sources":["orca","oip"]}}`:      func(c *Config) { c.Health.Sources = []string{"orca", "oip"} },
		`{"health":{"sources":[]}}`:                  func(c *Config) { c.Health.Sources = []string{} },
		`{"health":{"interval":"0.01s"}}`:            func(c *Config) { c.Health.Interval = millis(10) },
		`{"health":{"interval":"3600s"}}`:            func(c *Config) { c.Health.Interval = millis(3600e3) },
		`{"health":{"staleAfter":"600s"}}`:           func(c *Config) { c.Health.StaleAfter = millis(600e3) },
		`{"health":{"weights":{"errors":0}}}`:        func(c *Config) { c.Health.Weights.Errors = 0 },
		`{"health":{"weights":{"latency":1000}}}`:    func(c *Config) { c.Health.Weights.Latency = 1000 },
		`{"health":{"weights":{"gpuMemory":1}}}`:     func(c *Config) { c.Health.Weights.GPUMemory = 1 },
		`{"health":{"weights":{"connections":0.5}}}`: func(c *Config) { c.Health.Weights.Connections = .5 },
		`{"health":{"enterUnhealthy":0}}`:            func(c *Config) { c.Health.EnterUnhealthy = 0 },
		`{"health":{"leaveUnhealthy":1}}`:            func(c *Config) { c.Health.LeaveUnhealthy = 1 },
		`{"health":{"minDwell":"0s"}}`:               func(c *Config) { c.Health.MinDwell = 0 },
		`{"health":{"panicThreshold":0}}`:            func(c *Config) { c.Health.PanicThreshold = 0 },
		`{"health":{"panicThreshold":1}}`:            func(c *Config) { c.Health.PanicThreshold = 1 },
		`{"slowStart":{"window":"0s"}}`:              func(c *Config) { c.SlowStart.Window = 0 },
		`{"slowStart":{"window":"3600s"}}`:           func(c *Config) { c.SlowStart.Window = millis(3600e3) },
		`{"slowStart":{"window":"0.001s"}}`:          func(c *Config) { c.SlowStart.Window = millis(1) },
	} {
		parsed, err := ParseConfig([]byte(js))
		require.NoError(t, err, js)
		want := DefaultConfig()
		set(want)
		assert.Equal(t, want, parsed, js)
		assert.NoError(t, want.Validate(), js)
		assert.NoError(t, Lint(js))
	}
}

func millis(n int64) breaker.Duration { return breaker.Duration(time.Duration(n) * time.Millisecond) }

func TestHealthRejectsWithPathGotAndWant(t *testing.T) {
	t.Parallel()
	const (
		aSource   = "one of gpustats, oip, orca, standard"
		aDuration = `a duration in seconds such as "1.5s"`
	)
	for _, tc := range []struct{ section, value, path, got, want string }{
		{"health", `[]`, "", `[]`, "an object"},
		{"health", `{"sources":"oip"}`, ".sources", `"oip"`, "a list"},
		{"health", `{"sources":["triton"]}`, ".sources[0]", `"triton"`, aSource},
		{"health", `{"sources":["oip",""]}`, ".sources[1]", `""`, aSource},
		{"health", `{"sources":["oip","orca","oip"]}`, ".sources[2]", `"oip" a second time`, "each source once"},
		{"health", `{"sources":[7]}`, ".sources[0]", "7", "a string"},
		{"health", `{"interval":"0s"}`, ".interval", "0s", "0.01s to 3600s"},
		{"health", `{"interval":"0.009s"}`, ".interval", "0.009s", "0.01s to 3600s"},
		{"health", `{"interval":"3600.1s"}`, ".interval", "3600.1s", "0.01s to 3600s"},
		{"health", `{"interval":"-1s"}`, ".interval", `"-1s"`, aDuration},
		{"health", `{"interval":1}`, ".interval", "1", aDuration},
		{"health", `{"interval":"1m"}`, ".interval", `"1m"`, aDuration},
		{"health", `{"staleAfter":"0s"}`, ".staleAfter", "0s", "more than 0s, at most 600s"},
		{"health", `{"staleAfter":"601s"}`, ".staleAfter", "601s", "more than 0s, at most 600s"},
		{"health", `{"weights":[]}`, ".weights", "[]", "an object"},
		{"health", `{"weights":{"errors":-0.1}}`, ".weights.errors", "-0.1", "0 to 1000"},
		{"health", `{"weights":{"latency":1001}}`, ".weights.latency", "1001", "0 to 1000"},
		{"health", `{"weights":{"gpuMemory":"high"}}`, ".weights.gpuMemory", `"high"`, "a number"},
		{"health", `{"weights":{"connections":-1}}`, ".weights.connections", "-1", "0 to 1000"},
		{"health", `{"weights":{"errors":0,"latency":0,"gpuMemory":0,"connections":0}}`, ".weights", "all 0", "at least one above 0"},
		{"health", `{"enterUnhealthy":-0.1}`, ".enterUnhealthy", "-0.1", "0 to 1, and less than leaveUnhealthy"},
		{"health", `{"enterUnhealthy":0.4}`, ".leaveUnhealthy", "0.4", "more than enterUnhealthy (0.4), at most 1"},
		{"health", `{"leaveUnhealthy":1.1}`, ".leaveUnhealthy", "1.1", "more than enterUnhealthy (0.2), at most 1"},
		{"health", `{"minDwell":"601s"}`, ".minDwell", "601s", "0s to 600s"},
		{"health", `{"minDwell":3}`, ".minDwell", "3", aDuration},
		{"health", `{"panicThreshold":1.01}`, ".panicThreshold", "1.01", "0 to 1"},
		{"health", `{"panicThreshold":-1}`, ".panicThreshold", "-1", "0 to 1"},
		{"health", `{},"health":{}`, "", "given twice", "one value"},
		{"slowStart", `"30s"`, "", `"30s"`, "an object"},
		{"slowStart", `{"window":"-1s"}`, ".window", `"-1s"`, aDuration},
		{"slowStart", `{"window":"3600.5s"}`, ".window", "3600.5s", "0s to 3600s"},
		{"slowStart", `{"window":30}`, ".window", "30", aDuration},
	} {
		in := fmt.Sprintf(`{%q:%s}`, tc.section, tc.value)
		want := fmt.Sprintf("model_aware: %s%s is %s, want %s", tc.section, tc.path, tc.got, tc.want)
		_, err := ParseConfig([]byte(in))
		assert.EqualError(t, err, want, in)
		assert.EqualError(t, Lint(in), want)
	}
}

func TestTypedHealthIsCheckedToo(t *testing.T) {
	t.Parallel()
	h := DefaultHealth()
	h.Weights.Errors = -1
	assert.EqualError(t, (&Config{Health: h}).Validate(), "model_aware: health.weights.errors is -1, want 0 to 1000")
	h = DefaultHealth()
	h.PanicThreshold = math.NaN() // which JSON cannot say
	assert.Error(t, (&Config{Health: h}).Validate())
	assert.ErrorContains(t, (&Config{SlowStart: &SlowStartConfig{Window: -1}}).Validate(), "slowStart.window")
}

func TestUnknownHealthKeysAreLeftAloneAndLinted(t *testing.T) {
	t.Parallel()
	for in, path := range map[string]string{
		`{"health":{"source":[]}}`:            "health.source",
		`{"health":{"Interval":"1s"}}`:        "health.Interval",
		`{"health":{"weights":{"memory":1}}}`: "health.weights.memory",
		`{"slowStart":{"for":"1s"}}`:          "slowStart.for",
		`{"slowstart":{}}`:                    "slowstart",
	} {
		c, err := ParseConfig([]byte(in))
		require.NoError(t, err, in)
		assert.Equal(t, DefaultConfig(), c, in)
		assert.EqualError(t, Lint(in), fmt.Sprintf("model_aware: %s is not a known key", path))
	}
}

// A config that a control plane writes is read by programs that know other sources: what asks all of them must not list them.
func TestSourcesInJSON(t *testing.T) {
	t.Parallel()
	section := func(c *Config) map[string]any {
		js, err := json.Marshal(c)
		require.NoError(t, err)
		var m map[string]any
		require.NoError(t, json.Unmarshal(js, &m))
		return m
	}
	assert.Empty(t, section(&Config{}), "what is not set")
	all := section(DefaultConfig())
	assert.NotContains(t, all["health"], "sources")
	assert.Equal(t, map[string]any{
		"interval": "1s", "staleAfter": "5s", "minDwell": "3s", "enterUnhealthy": .2, "leaveUnhealthy": .4, "panicThreshold": .5,
		"weights": map[string]any{"errors": .4, "latency": .3, "gpuMemory": .2, "connections": .1},
	}, all["health"])
	assert.Equal(t, map[string]any{"window": "30s"}, all["slowStart"])

	none := DefaultHealth()
	none.Sources = []string{}
	assert.Contains(t, section(&Config{Health: none})["health"], "sources")

	require.Equal(t, []string{"gpustats", "oip", "orca", "standard"}, monitor.Names())
	for _, name := range monitor.Names() {
		assert.True(t, DefaultHealth().asks(name))
		assert.False(t, none.asks(name))
		assert.True(t, (&HealthConfig{Sources: []string{name}}).asks(name))
	}
	assert.False(t, (&HealthConfig{Sources: []string{"oip"}}).asks("orca"))
}

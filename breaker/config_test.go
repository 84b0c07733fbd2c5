package breaker

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestConfigDefault(t *testing.T) {
	c := DefaultConfig()
	require.NoError(t, c.Validate())
	js, err := json.Marshal(c)
	require.NoError(t, err)
	assert.JSONEq(t, `{"consecutiveFailures": 5, "failureRatio": 0.5, "minRequests": 10, "window": "30s",
		"slowCall": {"factor": 5, "ratio": 0.5}, "sequential": true,
		"openFor": "1s", "maxOpenFor": "300s", "halfOpenProbes": 3, "maxEjectionPercent": 50}`, string(js))
	var back Config
	require.NoError(t, json.Unmarshal(js, &back))
	assert.Equal(t, c, back)
}

func TestConfigOffSurvivesJSON(t *testing.T) {
	c := DefaultConfig()
	c.ConsecutiveFailures, c.FailureRatio, c.SlowCall.Ratio, c.Sequential, c.MaxEjectionPercent = 0, 0, 0, false, 0
	require.NoError(t, c.Validate())
	js, err := json.Marshal(c)
	require.NoError(t, err)
	back := DefaultConfig()
	require.NoError(t, json.Unmarshal(js, &back))
	assert.Equal(t, c, back)
}

func TestConfigValidate(t *testing.T) {
	for _, test := range []struct {
		edit             func(*Config)
		field, got, want string
	}{
		{func(c *Config) { c.ConsecutiveFailures = -1 }, "consecutiveFailures", "-1", "0 to 255"},
		{func(c *Config) { c.ConsecutiveFailures = 256 }, "consecutiveFailures", "256", "0 to 255"},
		{func(c *Config) { c.FailureRatio = 1.01 }, "failureRatio", "1.01", "0 to 1"},
		{func(c *Config) { c.FailureRatio = -0.1 }, "failureRatio", "-0.1", "0 to 1"},
		{func(c *Config) { c.FailureRatio = math.NaN() }, "failureRatio", "NaN", "0 to 1"},
		{func(c *Config) { c.MinRequests = 0 }, "minRequests", "0", "1 to 4095"},
		{func(c *Config) { c.MinRequests = 4096 }, "minRequests", "4096", "1 to 4095"},
		{func(c *Config) { c.Window = Duration(99 * time.Millisecond) }, "window", "0.099s", "0.1s to 3600s"},
		{func(c *Config) { c.Window = Duration(time.Hour + 1) }, "window", "3600.000000001s", "0.1s to 3600s"},
		{func(c *Config) { c.SlowCall.Factor = 0.9 }, "slowCall.factor", "0.9", "1 to 1000"},
		{func(c *Config) { c.SlowCall.Factor = math.Inf(1) }, "slowCall.factor", "+Inf", "1 to 1000"},
		{func(c *Config) { c.SlowCall.Ratio = 2 }, "slowCall.ratio", "2", "0 to 1"},
		{func(c *Config) { c.OpenFor = 0 }, "openFor", "0s", "0.001s to 3600s"},
		{func(c *Config) { c.OpenFor = Duration(2 * time.Hour) }, "openFor", "7200s", "0.001s to 3600s"},
		{func(c *Config) { c.MaxOpenFor = Duration(time.Millisecond) }, "maxOpenFor", "0.001s", "openFor (1s) to 86400s"},
		{func(c *Config) { c.MaxOpenFor = Duration(25 * time.Hour) }, "maxOpenFor", "90000s", "openFor (1s) to 86400s"},
		{func(c *Config) { c.HalfOpenProbes = 0 }, "halfOpenProbes", "0", "1 to 16"},
		{func(c *Config) { c.HalfOpenProbes = 17 }, "halfOpenProbes", "17", "1 to 16"},
		{func(c *Config) { c.MaxEjectionPercent = 101 }, "maxEjectionPercent", "101", "0 to 100"},
		{func(c *Config) { c.MaxEjectionPercent = -1 }, "maxEjectionPercent", "-1", "0 to 100"},
		{func(c *Config) { c.RampFor = -time.Second }, "rampFor", "-1s", "0s to 3600s"},
	} {
		c := DefaultConfig()
		test.edit(&c)
		var err *FieldError
		if assert.ErrorAs(t, c.Validate(), &err, test.field) {
			assert.Equal(t, FieldError{test.field, test.got, test.want}, *err)
			assert.EqualError(t, err, test.field+" is "+test.got+", want "+test.want)
		}
	}
}

func TestSlowTime(t *testing.T) {
	c := DefaultConfig()
	for _, test := range []struct{ expected, remaining, want time.Duration }{
		{0, 0, 0},
		{100 * time.Millisecond, 0, 500 * time.Millisecond},
		{100 * time.Millisecond, 10 * time.Second, 500 * time.Millisecond},
		{time.Second, 3 * time.Second, 2400 * time.Millisecond},
		{0, 3 * time.Second, 2400 * time.Millisecond},
		{time.Millisecond, 0, 50 * time.Millisecond},
		{0, 10 * time.Millisecond, 50 * time.Millisecond},
		{math.MaxInt64, 0, 0},
		{math.MaxInt64, math.MaxInt64, math.MaxInt64 / 5 * 4},
		{-1, -1, 0},
	} {
		assert.Equal(t, test.want, c.SlowTime(test.expected, test.remaining), "%v", test)
	}
}

func TestDurationJSON(t *testing.T) {
	for js, want := range map[string]time.Duration{
		`"1.5s"`: 1500 * time.Millisecond, `"300s"`: 300 * time.Second, `"0s"`: 0, `"0.000000001s"`: 1, `"007s"`: 7 * time.Second,
		`"1.000s"`: time.Second, `"9223372035.999999999s"`: 9223372035999999999,
	} {
		var d Duration
		require.NoError(t, json.Unmarshal([]byte(js), &d), js)
		assert.Equal(t, want, time.Duration(d), js)
		out, err := json.Marshal(d)
		require.NoError(t, err)
		var back Duration
		require.NoError(t, json.Unmarshal(out, &back))
		assert.Equal(t, d, back)
	}
	for _, js := range []string{
		`"5"`, `5`, `1.5`, `"1e999s"`, `"-1s"`, `"s"`, `""`, `".5s"`, `"1.s"`, `"1m"`, `"1m3s"`, `"1ms"`, `" 1s"`, `"1 s"`, `"+1s"`,
		`"NaNs"`, `"Infs"`,
		`"0x1s"`, `"1_0s"`, `"1.0000000001s"`, `"9223372036s"`, `"99999999999999999999s"`, `true`, `{}`, `[]`, `"1.2.3s"`, `"١s"`,
	} {
		d := Duration(42)
		err := json.Unmarshal([]byte(js), &d)
		if assert.Error(t, err, js) {
			assert.Contains(t, err.Error(), `a duration in seconds such as "1.5s"`)
			assert.Contains(t, err.Error(), js)
			assert.Equal(t, Duration(42), d)
		}
	}
	assert.Equal(t, "-1.5s", Duration(-1500*time.Millisecond).String())
	assert.Equal(t, "-9223372036.854775808s", Duration(math.MinInt64).String())
	assert.Equal(t, "0.05s", Duration(50*time.Millisecond).String())
}

package breaker

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Config says what opens a breaker, for how long, and what closes it again. Start from DefaultConfig: zero values are not
// defaults, they switch the rule off that they belong to.
type Config struct {
	// ConsecutiveFailures opens a breaker after as many failed calls in a row, calls that hang included; from 1 to 255. 0
	// switches the rule off. Default 5.
	ConsecutiveFailures int `json:"consecutiveFailures"`
	// FailureRatio opens a breaker when this share of the calls in the window failed; above 0, at most 1. 0 switches the rule
	// off. Default 0.5.
	FailureRatio float64 `json:"failureRatio"`
	// MinRequests is how many calls the window must hold before a ratio means anything; from 1 to 4,095. Default 10.
	MinRequests int `json:"minRequests"`
	// Window is how far back ratios look, in 9 to 16 steps; from 100 ms to 1 h. Default 30 s.
	Window Duration `json:"window"`
	// SlowCall is the rule about slow calls.
	SlowCall SlowCall `json:"slowCall"`
	// Sequential opens the breaker of an endpoint that fails significantly more of its calls than the rest of its group does;
	// false switches the rule off. Default true.
	Sequential bool `json:"sequential"`
	// OpenFor is the shortest time that a breaker stays open. Each time it opens again it is doubled, and each time up to half is
	// added at random. From 1 ms to 1 h. Default 1 s.
	OpenFor Duration `json:"openFor"`
	// MaxOpenFor is the longest time that a breaker stays open; from OpenFor to 24 h. Default 300 s.
	MaxOpenFor Duration `json:"maxOpenFor"`
	// HalfOpenProbes is how many probes of a half-open breaker are in flight at most, how many it grants per OpenFor at most,
	// and how many must succeed to close it; from 1 to 16. Default 3.
	HalfOpenProbes int `json:"halfOpenProbes"`
	// MaxEjectionPercent is the share of a group's breakers that may be open or half-open at once, rounded down; from 0 to 100.
	// 0 means that none ever opens. Default 50.
	MaxEjectionPercent int `json:"maxEjectionPercent"`

	// RampFor is how long it takes to bring the traffic back to a breaker that closed; from 0, at once, to 1 h. The default is
	// 0. It is no part of the JSON form.
	RampFor time.Duration `json:"-"`
}

// SlowCall opens a breaker when many calls are slow while those of the rest of the group are not.
type SlowCall struct {
	// Factor is how many times as long as expected a slow call takes; from 1 to 1,000. Default 5.
	Factor float64 `json:"factor"`
	// Ratio is the share of the calls in the window that are slow; above 0, at most 1. 0 switches the rule off. Default 0.5.
	Ratio float64 `json:"ratio"`
}

// DefaultConfig returns a Config with each field at its default.
func DefaultConfig() Config {
	return Config{
		ConsecutiveFailures: 5,
		FailureRatio:        0.5,
		MinRequests:         10,
		Window:              Duration(defaultWindow),
		SlowCall:            SlowCall{Factor: 5, Ratio: 0.5},
		Sequential:          true,
		OpenFor:             Duration(time.Second),
		MaxOpenFor:          Duration(300 * time.Second),
		HalfOpenProbes:      3,
		MaxEjectionPercent:  50,
	}
}

// Validate returns a *FieldError for the first field that is out of range, or nil.
func (c *Config) Validate() error {
	switch {
	case c.ConsecutiveFailures < 0 || c.ConsecutiveFailures > maxStreak:
		return badField("consecutiveFailures", c.ConsecutiveFailures, "0 to 255")
	case !(c.FailureRatio >= 0 && c.FailureRatio <= 1):
		return badField("failureRatio", c.FailureRatio, "0 to 1")
	case c.MinRequests < 1 || c.MinRequests > maxTally:
		return badField("minRequests", c.MinRequests, "1 to 4095")
	case !within(c.Window, 100*time.Millisecond, time.Hour):
		return badField("window", c.Window, "0.1s to 3600s")
	case !(c.SlowCall.Factor >= 1 && c.SlowCall.Factor <= 1000):
		return badField("slowCall.factor", c.SlowCall.Factor, "1 to 1000")
	case !(c.SlowCall.Ratio >= 0 && c.SlowCall.Ratio <= 1):
		return badField("slowCall.ratio", c.SlowCall.Ratio, "0 to 1")
	case !within(c.OpenFor, time.Millisecond, time.Hour):
		return badField("openFor", c.OpenFor, "0.001s to 3600s")
	case !within(c.MaxOpenFor, time.Duration(c.OpenFor), 24*time.Hour):
		return badField("maxOpenFor", c.MaxOpenFor, fmt.Sprintf("openFor (%v) to 86400s", c.OpenFor))
	case c.HalfOpenProbes < 1 || c.HalfOpenProbes > maxProbes:
		return badField("halfOpenProbes", c.HalfOpenProbes, "1 to 16")
	case c.MaxEjectionPercent < 0 || c.MaxEjectionPercent > 100:
		return badField("maxEjectionPercent", c.MaxEjectionPercent, "0 to 100")
	case c.RampFor < 0 || c.RampFor > time.Hour:
		return badField("rampFor", Duration(c.RampFor), "0s to 3600s")
	}
	return nil
}

func within(d Duration, low, high time.Duration) bool {
	return time.Duration(d) >= low && time.Duration(d) <= high
}

// minSlow is the least slow time: below it, a hiccup of the network or of a scheduler makes any call slow.
const minSlow = 50 * time.Millisecond

// SlowTime returns the time after which a call counts as slow: Factor times as long as expected, but no longer than 0.8 of the
// time that the call has until its deadline, and at least 50 ms. Expected is 0 where it is not known, remaining 0 where there
// is no deadline; the result is 0, never slow, where neither is known.
func (c *Config) SlowTime(expected, remaining time.Duration) time.Duration {
	slow := time.Duration(math.MaxInt64)
	if expected > 0 {
		if s := c.SlowCall.Factor * float64(expected); s < math.MaxInt64 {
			slow = time.Duration(s)
		}
	}
	if remaining > 0 {
		slow = min(slow, remaining/5*4)
	}
	if slow == math.MaxInt64 {
		return 0
	}
	return max(slow, minSlow)
}

// defaultWindow is the window of a breaker that is in no group.
const defaultWindow = 30 * time.Second

// FieldError says which field of a Config is wrong, what it holds and what it should hold.
type FieldError struct {
	Field     string // JSON path below the section, such as "slowCall.ratio"
	Got, Want string
}

// Error implements error.
func (e *FieldError) Error() string { return fmt.Sprintf("%s is %s, want %s", e.Field, e.Got, e.Want) }

func badField(field string, got any, want string) error {
	return &FieldError{Field: field, Got: fmt.Sprint(got), Want: want}
}

// Duration is a time.Duration whose JSON form is that of protocol buffers: a string of seconds that ends with "s", such as
// "1.5s", with up to nine decimals.
type Duration time.Duration

// String returns the duration in its JSON form, without quotes.
func (d Duration) String() string {
	if d < 0 {
		return "-" + seconds(uint64(-d)) // the least Duration is its own negative, whose magnitude is right when unsigned
	}
	return seconds(uint64(d))
}

func seconds(ns uint64) string {
	s := strconv.FormatUint(ns/1e9, 10)
	if frac := ns % 1e9; frac != 0 {
		s += "." + strings.TrimRight(fmt.Sprintf("%09d", frac), "0")
	}
	return s + "s"
}

// MarshalJSON implements json.Marshaler.
func (d Duration) MarshalJSON() ([]byte, error) { return []byte(`"` + d.String() + `"`), nil }

// UnmarshalJSON implements json.Unmarshaler. It takes what MarshalJSON writes, negative durations excepted.
func (d *Duration) UnmarshalJSON(data []byte) error {
	text, ok := strings.CutPrefix(string(data), `"`)
	if ok {
		text, ok = strings.CutSuffix(text, `s"`)
	}
	whole, frac, point := strings.Cut(text, ".")
	if !ok || !digits(whole) || point && (!digits(frac) || len(frac) > 9) {
		return errDuration(data)
	}
	s, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || s >= math.MaxInt64/int64(time.Second) {
		return errDuration(data)
	}
	ns, _ := strconv.ParseInt((frac + "000000000")[:9], 10, 64)
	*d = Duration(s*1e9 + ns)
	return nil
}

func digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// errDuration is the JSON that is no Duration.
type errDuration string

// Error implements error.
func (e errDuration) Error() string {
	return fmt.Sprintf("duration is %s, want %s", string(e), e.Want())
}

// Want says what a Duration looks like, for decoders that word their own errors.
func (e errDuration) Want() string { return `a duration in seconds such as "1.5s"` }

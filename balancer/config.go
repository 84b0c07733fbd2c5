package balancer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/serviceconfig"

	"github.com/mlbalancer/mlbalancer/breaker"
	"github.com/mlbalancer/mlbalancer/internal/methods"
	"github.com/mlbalancer/mlbalancer/internal/outcome"
	"github.com/mlbalancer/mlbalancer/internal/strictjson"
	"github.com/mlbalancer/mlbalancer/picker"
)

// Config is the typed form of the policy's section of a service config. The zero value means all defaults, and
// so does the zero value of each field. A Config must not be changed once it is in use.
type Config struct {
	serviceconfig.LoadBalancingConfig `json:"-"`

	// Request says how the policy learns what a call is about.
	Request RequestConfig
	// Inference places calls that name a model. Default: affinity.
	Inference StrategyConfig
	// Update places calls that change servers, and calls that name no model. Default: p2c.
	Update StrategyConfig
	// Breaker says what opens circuit breakers. Nil means DefaultBreaker.
	Breaker *BreakerConfig
	// Health says how endpoints' health is found out, and how it counts. Nil means DefaultHealth.
	Health *HealthConfig
	// SlowStart says how endpoints that are new get their share of the traffic. Nil means DefaultSlowStart.
	SlowStart *SlowStartConfig
	// Strategies holds the options of strategies, at most one of each name; a strategy that is not listed has its defaults. In JSON each
	// is a section of its own, under the strategy's name.
	Strategies []picker.Options
}

// RequestConfig says how the policy learns what a call is about.
type RequestConfig struct {
	// ModelHeaders are the outgoing metadata keys that may name the model; the first one that is present and not empty counts.
	// Nil means DefaultModelHeaders, an empty list none. Case is ignored; keys that start with "grpc-" or end with "-bin" are rejected.
	ModelHeaders []string `json:"modelHeaders,omitzero"`
	// AffinityHeader is the outgoing metadata key that holds the affinity key of a call whose context has none: a session, say,
	// or a hash of the beginning of a prompt; see picker.Request. A value of more than 512 bytes counts as none. Empty, the
	// default, reads none. The same keys are rejected as in ModelHeaders.
	AffinityHeader string `json:"affinityHeader,omitempty"`
	// UpdateMethods are methods ("/service/Method" or "/service/*") whose calls are updates, beside those that are known to be.
	UpdateMethods []string `json:"updateMethods,omitzero"`
	// ModelFields says where a method's request message names the model: from method ("/service/Method" or "/service/*") to a path of
	// field numbers ("1", "1.13"). It overrides what is known of the method; an exact method overrides "/service/*".
	ModelFields map[string]string `json:"modelFields,omitzero"`
}

// StrategyConfig names a strategy.
type StrategyConfig struct {
	// Strategy is the name of a registered strategy; empty means the default.
	Strategy string `json:"strategy,omitempty"`
}

// BreakerConfig says what opens the circuit breakers of endpoints, and of models on endpoints. Start from DefaultBreaker: a field that is
// zero switches its rule off.
type BreakerConfig struct {
	breaker.Config
	// PerModel gives each model on an endpoint a breaker of its own: a model that fails there is taken out of that endpoint alone, unless
	// others fail there too. If false, a model's failures count for its endpoint. Default true.
	PerModel bool `json:"perModel"`
	// Codes says what a status code means, whatever the text: from gRPC's name of the code ("NOT_FOUND") to "success",
	// "failure" (of the endpoint), "model-fault", "misplaced" (the model is not there), "overload", "draining", "caller-fault" or "cancelled".
	// Codes that are not listed mean what the servers that are known mean by them.
	Codes map[string]string `json:"codes,omitzero"`
}

// DefaultBreaker returns a BreakerConfig with each field at its default.
func DefaultBreaker() *BreakerConfig {
	return &BreakerConfig{Config: breaker.DefaultConfig(), PerModel: true}
}

// DefaultModelHeaders returns the metadata keys that are read for a model by default, in order: ours, those of ModelMesh, Seldon Core
// and Ray Serve, and that of the Gateway API inference extension.
func DefaultModelHeaders() []string {
	return []string{"x-model-id", "mm-model-id", "mm-vmodel-id", "seldon-model", "multiplexed_model_id", "x-gateway-model-name"}
}

const (
	defaultInference = "affinity"
	defaultUpdate    = "p2c"
)

// DefaultConfig returns a Config with each default spelt out.
func DefaultConfig() *Config {
	c := &Config{}
	c.fill()
	return c
}

// fill replaces zero values by defaults. Strategies end up complete and sorted by name.
func (c *Config) fill() {
	if c.Request.ModelHeaders == nil {
		c.Request.ModelHeaders = DefaultModelHeaders()
	}
	if c.Inference.Strategy == "" {
		c.Inference.Strategy = defaultInference
	}
	if c.Update.Strategy == "" {
		c.Update.Strategy = defaultUpdate
	}
	if c.Breaker == nil {
		c.Breaker = DefaultBreaker()
	}
	if c.Health == nil {
		c.Health = DefaultHealth()
	}
	if c.SlowStart == nil {
		c.SlowStart = DefaultSlowStart()
	}
	for _, name := range picker.Strategies() {
		if c.options(name) == nil {
			c.Strategies = append(c.Strategies, picker.Defaults(name))
		}
	}
	slices.SortStableFunc(c.Strategies, func(a, b picker.Options) int { return strings.Compare(a.Strategy(), b.Strategy()) })
}

func (c *Config) options(name string) picker.Options {
	for _, o := range c.Strategies {
		if o.Strategy() == name {
			return o
		}
	}
	return nil
}

// plan returns what the picker's tables are built with. c must be filled and valid.
func (c *Config) plan() picker.Plan {
	return picker.Plan{Inference: c.options(c.Inference.Strategy), Update: c.options(c.Update.Strategy)}
}

// ParseConfig parses the policy's section of a service config, {} for all defaults. A value that is wrong makes the whole config
// invalid; the error names its path, what it is and what it should be. A key that nothing reads is logged as a warning, once for each
// call, since gRPC asks policies to ignore unknown keys; Lint rejects them.
func ParseConfig(js json.RawMessage) (*Config, error) {
	c, unknown, err := parse(js)
	if err != nil {
		logger.Warningf("config rejected: %v", err)
		return nil, err
	}
	for _, path := range unknown {
		logger.Warningf("unknown config key %s ignored", path)
	}
	return c, nil
}

func parse(js json.RawMessage) (c *Config, unknown []string, err error) {
	fields, err := strictjson.Object(js, "")
	if err != nil {
		return nil, nil, named(err)
	}
	c = &Config{Breaker: DefaultBreaker(), Health: DefaultHealth(), SlowStart: DefaultSlowStart()}
	for _, f := range fields {
		var section any
		switch f.Key {
		case "request":
			section = &c.Request
		case "inference":
			section = &c.Inference
		case "update":
			section = &c.Update
		case "breaker":
			section = c.Breaker
		case "health":
			section = c.Health
		case "slowStart":
			section = c.SlowStart
		default:
			o := picker.Defaults(f.Key)
			if o == nil {
				unknown = append(unknown, strictjson.Join("", f.Key))
				continue
			}
			c.Strategies = append(c.Strategies, o)
			section = o
		}
		more, err := strictjson.Decode(f.Value, strictjson.Join("", f.Key), section)
		if err != nil {
			return nil, nil, named(err)
		}
		unknown = append(unknown, more...)
	}
	if err := c.normalize(); err != nil {
		return nil, nil, named(err)
	}
	return c, unknown, nil
}

func named(err error) error { return fmt.Errorf("%s: %w", Name, err) }

// normalize fills in the defaults and checks every value.
func (c *Config) normalize() error {
	c.fill()
	if err := c.Request.check(); err != nil {
		return err
	}
	if err := c.Breaker.check(); err != nil {
		return err
	}
	if err := c.Health.check(); err != nil {
		return err
	}
	if err := c.SlowStart.check(); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, o := range c.Strategies {
		name := o.Strategy()
		if seen[name] {
			return &strictjson.Error{Path: name, Got: "given twice", Want: "one set of options"}
		}
		seen[name] = true
		if err := o.Validate(); err != nil {
			var bad *picker.FieldError
			if errors.As(err, &bad) {
				return &strictjson.Error{Path: strictjson.Join(name, bad.Field), Got: bad.Got, Want: bad.Want}
			}
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for _, s := range []struct{ path, name string }{{"inference.strategy", c.Inference.Strategy}, {"update.strategy", c.Update.Strategy}} {
		if !seen[s.name] {
			return &strictjson.Error{Path: s.path, Got: quote(s.name), Want: "one of " + strings.Join(picker.Strategies(), ", ")}
		}
	}
	return nil
}

func (b *BreakerConfig) check() error {
	var rule *breaker.FieldError
	if err := b.Validate(); errors.As(err, &rule) {
		return &strictjson.Error{Path: "breaker." + rule.Field, Got: rule.Got, Want: rule.Want}
	}
	var code *picker.FieldError
	if _, err := outcome.New(b.Codes); errors.As(err, &code) {
		return &strictjson.Error{Path: "breaker." + code.Field, Got: code.Got, Want: code.Want}
	}
	return nil
}

func (r *RequestConfig) check() error {
	seen := map[string]bool{}
	for i, h := range r.ModelHeaders {
		path := fmt.Sprintf("request.modelHeaders[%d]", i)
		h = strings.ToLower(h)
		if !validHeader(h) {
			return &strictjson.Error{Path: path, Got: quote(h), Want: wantHeader}
		}
		if seen[h] {
			return &strictjson.Error{Path: path, Got: quote(h) + " a second time", Want: "each key once"}
		}
		seen[h] = true
		r.ModelHeaders[i] = h
	}
	r.AffinityHeader = strings.ToLower(r.AffinityHeader)
	if r.AffinityHeader != "" && !validHeader(r.AffinityHeader) {
		return &strictjson.Error{Path: "request.affinityHeader", Got: quote(r.AffinityHeader), Want: `"" or ` + wantHeader}
	}
	clear(seen)
	for i, m := range r.UpdateMethods {
		path := fmt.Sprintf("request.updateMethods[%d]", i)
		if !validPattern(m) {
			return &strictjson.Error{Path: path, Got: quote(m), Want: `"/service/Method" or "/service/*"`}
		}
		if seen[m] {
			return &strictjson.Error{Path: path, Got: quote(m) + " a second time", Want: "each method once"}
		}
		seen[m] = true
	}
	for m, field := range r.ModelFields {
		path := strictjson.Join("request.modelFields", m)
		if !validPattern(m) {
			return &strictjson.Error{Path: path, Got: "set for " + quote(m), Want: `a key "/service/Method" or "/service/*"`}
		}
		if _, err := methods.ParsePath(field); err != nil {
			return &strictjson.Error{Path: path, Got: quote(field), Want: `a path of field numbers such as "1" or "1.13"`}
		}
	}
	return nil
}

const wantHeader = `a metadata key of letters, digits, "-", "_" and "." that does not start with "grpc-" or end with "-bin"`

func validHeader(h string) bool {
	const allowed = "abcdefghijklmnopqrstuvwxyz0123456789-_."
	return h != "" && strings.Trim(h, allowed) == "" && !strings.HasPrefix(h, "grpc-") && !strings.HasSuffix(h, "-bin")
}

// validPattern reports whether s is "/service/Method" or "/service/*".
func validPattern(s string) bool {
	service, method, ok := strings.Cut(strings.TrimPrefix(s, "/"), "/")
	return ok && strings.HasPrefix(s, "/") && service != "" && method != "" && !strings.ContainsAny(method, "/ ") &&
		!strings.ContainsAny(service, "* ") && (method == "*" || !strings.Contains(method, "*"))
}

func quote(s string) string { return fmt.Sprintf("%q", s) }

// MarshalJSON returns the policy's section of a service config. Parsing it gives an equal Config; xDS relies on that.
func (c *Config) MarshalJSON() ([]byte, error) {
	sections := map[string]any{}
	if !c.Request.isZero() {
		sections["request"] = c.Request
	}
	if c.Inference != (StrategyConfig{}) {
		sections["inference"] = c.Inference
	}
	if c.Update != (StrategyConfig{}) {
		sections["update"] = c.Update
	}
	if c.Breaker != nil {
		sections["breaker"] = c.Breaker
	}
	if c.Health != nil {
		sections["health"] = c.Health
	}
	if c.SlowStart != nil {
		sections["slowStart"] = c.SlowStart
	}
	for _, o := range c.Strategies {
		sections[o.Strategy()] = o
	}
	return json.Marshal(sections)
}

func (r *RequestConfig) isZero() bool {
	return r.ModelHeaders == nil && r.AffinityHeader == "" && r.UpdateMethods == nil && r.ModelFields == nil
}

// Validate reports the first value that is wrong, as ParseConfig would. Zero values are defaults.
func (c *Config) Validate() error {
	js, err := json.Marshal(c)
	if err != nil {
		return named(err)
	}
	_, _, err = parse(js)
	return err
}

// ServiceConfig returns a whole service config that selects the policy with this Config, for grpc.WithDefaultServiceConfig or a resolver.
func (c *Config) ServiceConfig() string {
	js, err := json.Marshal(map[string]any{"loadBalancingConfig": []any{map[string]any{Name: c}}})
	if err != nil {
		// Only Options of a strategy from elsewhere can fail to marshal; gRPC then rejects the config with this text.
		return fmt.Sprintf("%s: %v", Name, err)
	}
	return string(js)
}

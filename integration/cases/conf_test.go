package cases

import (
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/apipb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/mlbalancer/mlbalancer"
	"github.com/mlbalancer/mlbalancer/balancer"
	"github.com/mlbalancer/mlbalancer/integration/cases/early"
	"github.com/mlbalancer/mlbalancer/integration/rig"
	"github.com/mlbalancer/mlbalancer/picker"
)

// options are all options of the policy's section, by path, each with a valid value that is not its default.
var options = map[string]string{
	"request.affinityHeader": `"x-session"`,
	"request.modelHeaders":   `["x-model"]`,
	"request.updateMethods":  `["/svc/Method"]`,
	"request.modelFields":    `{"/svc/Method":"1.2"}`,
	"inference.strategy":     `"p2c"`,
	"update.strategy":        `"ring"`,
	"p2c.choices":            `3`,
	"ring.virtualNodes":      `99`,
	"ring.replicas":          `3`,
	"ring.loadFactor":        `1.5`,

	"breaker.consecutiveFailures": `7`,
	"breaker.failureRatio":        `0.25`,
	"breaker.minRequests":         `20`,
	"breaker.window":              `"10s"`,
	"breaker.slowCall.factor":     `3`,
	"breaker.slowCall.ratio":      `0.75`,
	"breaker.sequential":          `false`,
	"breaker.openFor":             `"0.5s"`,
	"breaker.maxOpenFor":          `"60s"`,
	"breaker.halfOpenProbes":      `2`,
	"breaker.maxEjectionPercent":  `75`,
	"breaker.perModel":            `false`,
	"breaker.codes":               `{"NOT_FOUND":"failure"}`,
	"health.sources":              `["standard"]`,
	"health.interval":             `"2s"`,
	"health.staleAfter":           `"10s"`,
	"health.weights.errors":       `0.5`,
	"health.weights.latency":      `0.5`,
	"health.weights.gpuMemory":    `0.5`,
	"health.weights.connections":  `0.5`,
	"health.enterUnhealthy":       `0.1`,
	"health.leaveUnhealthy":       `0.5`,
	"health.minDwell":             `"5s"`,
	"health.panicThreshold":       `0.3`,
	"health.gpustatsPort":         `9101`,

	"slowStart.window": `"10s"`,

	"affinity.maxReplicas":         `3`,
	"affinity.coldLoad":            `"5s"`,
	"affinity.endpointConcurrency": `8`,
}

// documented returns the paths of all options that the policy documents: those of the config's types, and those of each strategy.
func documented() []string {
	var paths []string
	var add func(section string, of reflect.Type)
	add = func(section string, of reflect.Type) {
		for i := range of.NumField() {
			f := of.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case name == "-" || !f.IsExported():
			case f.Anonymous:
				add(section, f.Type)
			case f.Type.Kind() == reflect.Struct:
				add(section+"."+name, f.Type)
			default:
				paths = append(paths, section+"."+name)
			}
		}
	}
	add("request", reflect.TypeFor[balancer.RequestConfig]())
	add("inference", reflect.TypeFor[balancer.StrategyConfig]())
	add("update", reflect.TypeFor[balancer.StrategyConfig]())
	add("breaker", reflect.TypeFor[balancer.BreakerConfig]())
	add("health", reflect.TypeFor[balancer.HealthConfig]())
	add("slowStart", reflect.TypeFor[balancer.SlowStartConfig]())
	for _, name := range picker.Strategies() {
		add(name, reflect.TypeOf(picker.Defaults(name)).Elem())
	}
	slices.Sort(paths)
	return paths
}

// section returns the policy's section of a service config with one option.
func section(path, value string) string {
	keys := strings.Split(path, ".")
	for _, k := range slices.Backward(keys) {
		value = fmt.Sprintf("{%q:%s}", k, value)
	}
	return value
}

// Typos in the JSON must not be ignored in silence (grpc/grpc-go#7818). As gRPC asks, a key that is not known is no error: it makes
// exactly one warning with its path, and balancer.Lint rejects it. A value of the wrong type is an error.
func TestCONF01(t *testing.T) {
	var covered []string
	for path := range options {
		covered = append(covered, path)
	}
	require.ElementsMatch(t, documented(), covered, "each option is tried")

	f := rig.New(t, 1)
	// accepted makes a channel, sends a call, and returns what was warned of meanwhile.
	accepted := func(config string) []string {
		t.Helper()
		before := len(logged.Lines("model_aware"))
		c := f.Client(rig.Setup{Config: config})
		_, err := c.Call(t.Context(), "m")
		require.NoError(t, err, config)
		require.NoError(t, c.Close())
		return logged.Lines("model_aware")[before:]
	}
	warnsOf := func(config, path string) {
		t.Helper()
		warnings := accepted(config)
		require.Len(t, warnings, 1, "%s", config)
		require.Contains(t, warnings[0], " "+path+" ", "%s", config)
		require.ErrorContains(t, balancer.Lint(rig.ServiceConfig(config)), path)
	}
	for path, value := range options {
		dot := strings.LastIndex(path, ".")
		top, key := path[:dot], path[dot+1:]
		good := section(path, value)
		require.Empty(t, accepted(good), "%s", good)
		require.NoError(t, balancer.Lint(rig.ServiceConfig(good)))
		parsed, err := balancer.ParseConfig([]byte(good))
		require.NoError(t, err)
		require.NotEqual(t, balancer.DefaultConfig(), parsed, "%s is in force", path)

		warnsOf(section(path+"x", value), path+"x")
		upper := strings.ToUpper(key[:1]) + key[1:]
		warnsOf(section(top+"."+upper, value), top+"."+upper)
		warnsOf(section(key, value), key)
		outer, _, _ := strings.Cut(top, ".")
		warnsOf(section("request."+top, section(key, value)), "request."+outer)

		wrong := section(path, `{"/svc/Method":[1]}`)
		_, err = f.Dial(rig.Setup{Config: wrong})
		require.ErrorContains(t, err, path, "%s", wrong)
		require.ErrorContains(t, balancer.Lint(rig.ServiceConfig(wrong)), path)
	}
	for _, top := range append([]string{"request", "inference", "update", "breaker", "health", "slowStart"}, picker.Strategies()...) {
		warnsOf(section(strings.ToUpper(top), `{}`), strings.ToUpper(top))
		for _, wrong := range []string{`[]`, `1`, `"x"`} {
			_, err := f.Dial(rig.Setup{Config: section(top, wrong)})
			require.ErrorContains(t, err, top+" is "+wrong, "%s", top)
		}
	}
}

// invalid are values out of range: a path, and what is wrong there. The limits of hedging join with the options that have them.
var invalid = []struct{ path, config string }{
	{"ring.virtualNodes", `{"ring":{"virtualNodes":0}}`},
	{"ring.virtualNodes", `{"ring":{"virtualNodes":-1}}`},
	{"ring.virtualNodes", `{"ring":{"virtualNodes":100001}}`},
	{"ring.virtualNodes", `{"ring":{"virtualNodes":2147483648}}`},
	{"ring.virtualNodes", `{"ring":{"virtualNodes":1e99}}`},
	{"ring.virtualNodes", `{"ring":{"virtualNodes":1.5}}`},
	{"ring.virtualNodes", `{"ring":{"virtualNodes":"5"}}`},
	{"ring.replicas", `{"ring":{"replicas":0}}`},
	{"ring.replicas", `{"ring":{"replicas":17}}`},
	{"ring.loadFactor", `{"ring":{"loadFactor":0}}`},
	{"ring.loadFactor", `{"ring":{"loadFactor":1}}`},
	{"ring.loadFactor", `{"ring":{"loadFactor":-1.5}}`},
	{"ring.loadFactor", `{"ring":{"loadFactor":101}}`},
	{"ring.loadFactor", `{"ring":{"loadFactor":1e999}}`},
	{"ring.loadFactor", `{"ring":{"loadFactor":"NaN"}}`},
	{"p2c.choices", `{"p2c":{"choices":0}}`},
	{"p2c.choices", `{"p2c":{"choices":1}}`},
	{"p2c.choices", `{"p2c":{"choices":1000000}}`},
	{"breaker.consecutiveFailures", `{"breaker":{"consecutiveFailures":-1}}`},
	{"breaker.consecutiveFailures", `{"breaker":{"consecutiveFailures":256}}`},
	{"breaker.failureRatio", `{"breaker":{"failureRatio":1.5}}`},
	{"breaker.failureRatio", `{"breaker":{"failureRatio":-0.1}}`},
	{"breaker.failureRatio", `{"breaker":{"failureRatio":"NaN"}}`},
	{"breaker.minRequests", `{"breaker":{"minRequests":0}}`},
	{"breaker.minRequests", `{"breaker":{"minRequests":2147483648}}`},
	{"breaker.window", `{"breaker":{"window":"0s"}}`},
	{"breaker.window", `{"breaker":{"window":"3601s"}}`},
	{"breaker.window", `{"breaker":{"window":"-1s"}}`},
	{"breaker.window", `{"breaker":{"window":5}}`},
	{"breaker.slowCall.factor", `{"breaker":{"slowCall":{"factor":0}}}`},
	{"breaker.slowCall.ratio", `{"breaker":{"slowCall":{"ratio":1.5}}}`},
	{"breaker.sequential", `{"breaker":{"sequential":1}}`},
	{"breaker.openFor", `{"breaker":{"openFor":"-1s"}}`},
	{"breaker.openFor", `{"breaker":{"openFor":"5"}}`},
	{"breaker.openFor", `{"breaker":{"openFor":"1e999s"}}`},
	{"breaker.openFor", `{"breaker":{"openFor":"0s"}}`},
	{"breaker.maxOpenFor", `{"breaker":{"openFor":"10s","maxOpenFor":"5s"}}`},
	{"breaker.maxOpenFor", `{"breaker":{"maxOpenFor":"99999999999999999999s"}}`},
	{"breaker.halfOpenProbes", `{"breaker":{"halfOpenProbes":0}}`},
	{"breaker.halfOpenProbes", `{"breaker":{"halfOpenProbes":17}}`},
	{"breaker.maxEjectionPercent", `{"breaker":{"maxEjectionPercent":101}}`},
	{"breaker.maxEjectionPercent", `{"breaker":{"maxEjectionPercent":-1}}`},
	{"breaker.codes", `{"breaker":{"codes":{"NOT_FOUD":"failure"}}}`},
	{"breaker.codes.NOT_FOUND", `{"breaker":{"codes":{"NOT_FOUND":"fail"}}}`},
	{"health.sources[1]", `{"health":{"sources":["standard","standrad"]}}`},
	{"health.sources[1]", `{"health":{"sources":["oip","oip"]}}`},
	{"health.interval", `{"health":{"interval":"0s"}}`},
	{"health.interval", `{"health":{"interval":"3601s"}}`},
	{"health.interval", `{"health":{"interval":1}}`},
	{"health.staleAfter", `{"health":{"staleAfter":"0s"}}`},
	{"health.staleAfter", `{"health":{"staleAfter":"3600s"}}`},
	{"health.weights.errors", `{"health":{"weights":{"errors":-1}}}`},
	{"health.weights.latency", `{"health":{"weights":{"latency":1e999}}}`},
	{"health.enterUnhealthy", `{"health":{"enterUnhealthy":-0.1}}`},
	{"health.leaveUnhealthy", `{"health":{"leaveUnhealthy":1.1}}`},
	{"health.minDwell", `{"health":{"minDwell":"-1s"}}`},
	{"health.panicThreshold", `{"health":{"panicThreshold":1.5}}`},
	{"health.panicThreshold", `{"health":{"panicThreshold":-0.1}}`},
	{"health.panicThreshold", `{"health":{"panicThreshold":"50%"}}`},
	{"slowStart.window", `{"slowStart":{"window":"-1s"}}`},
	{"slowStart.window", `{"slowStart":{"window":"3601s"}}`},
	{"affinity.maxReplicas", `{"affinity":{"maxReplicas":-1}}`},
	{"affinity.coldLoad", `{"affinity":{"coldLoad":"-1s"}}`},
	{"affinity.endpointConcurrency", `{"affinity":{"endpointConcurrency":-1}}`},
	{"inference.strategy", `{"inference":{"strategy":"rign"}}`},
	{"update.strategy", `{"update":{"strategy":"RING"}}`},
	{"request.modelHeaders[0]", `{"request":{"modelHeaders":[""]}}`},
	{"request.modelHeaders[0]", `{"request":{"modelHeaders":["grpc-foo"]}}`},
	{"request.modelHeaders[0]", `{"request":{"modelHeaders":["-bin"]}}`},
	{"request.modelHeaders[1]", `{"request":{"modelHeaders":["ok","a b"]}}`},
	{"request.updateMethods[0]", `{"request":{"updateMethods":["svc/Method"]}}`},
	{`request.modelFields["/svc"]`, `{"request":{"modelFields":{"/svc":"1"}}}`},
	{`request.modelFields["/svc/M"]`, `{"request":{"modelFields":{"/svc/M":"0"}}}`},
	{`request.modelFields["/svc/M"]`, `{"request":{"modelFields":{"/svc/M":"1..2"}}}`},
	{`request.modelFields["/svc/M"]`, `{"request":{"modelFields":{"/svc/M":""}}}`},
	{`request.modelFields["/svc/M"]`, `{"request":{"modelFields":{"/svc/M":"4294967296"}}}`},
}

// Invalid values must be rejected, not skipped (grpc/grpc-go#7905): the config as a whole, and the last good one stays.
func TestCONF02(t *testing.T) {
	const good, sample = `{"ring":{"virtualNodes":50},"p2c":{"choices":3}}`, 50
	f := rig.New(t, 3)
	c := f.Client(rig.Setup{})
	c.Ready(3)
	require.NoError(t, c.ResolveConfig(good, f.Endpoints()...).Err)
	before := served(t, c, sample)
	require.Equal(t, rig.ModelAware(t, good, f.Endpoints()...).Map(rig.Models(sample)), before)

	traffic := atRate(t, 100, func(i int) rig.Result { return c.Send(rig.Model(i%sample), limit) })
	var mem0, mem1 runtime.MemStats
	every := time.NewTicker(50 * time.Millisecond)
	defer every.Stop()
	for _, bad := range invalid {
		<-every.C
		lines := logged.Count(bad.path)
		runtime.ReadMemStats(&mem0)
		start := time.Now()
		err := c.ResolveConfig(bad.config, f.Endpoints()...).Err
		took := time.Since(start)
		runtime.ReadMemStats(&mem1)
		require.ErrorContains(t, err, "model_aware: "+bad.path+" is ", "%s", bad.config)
		require.ErrorContains(t, err, ", want ", "%s", bad.config)
		assert.Greater(t, logged.Count(bad.path), lines, "%s is logged", bad.config)
		assert.Less(t, mem1.TotalAlloc-mem0.TotalAlloc, uint64(64<<20), "%s", bad.config)
		assert.Less(t, took, 100*time.Millisecond+f.Pause(), "%s", bad.config)
		_, err = f.Dial(rig.Setup{Config: bad.config})
		require.ErrorContains(t, err, bad.path)
	}
	require.Equal(t, before, served(t, c, sample), "the good config is in force")
	rs := traffic.stop()
	assert.Empty(t, rs.Failed(), "%v", rs)
}

// A duplicate key must not make a config that counts for nothing (envoyproxy/envoy#14232): it is rejected with its path. Where
// patterns of methods overlap, the exact one counts, however they are ordered. Rules of limits and breakers join with those.
func TestCONF05(t *testing.T) {
	t.Parallel()
	f := rig.New(t, 2)
	for path, config := range map[string]string{
		"ring":                           `{"ring":{"replicas":1},"p2c":{},"ring":{"replicas":2}}`,
		"ring.replicas":                  `{"ring":{"replicas":1,"replicas":2}}`,
		"request.modelHeaders[1]":        `{"request":{"modelHeaders":["X-Model","x-model"]}}`,
		"request.updateMethods[2]":       `{"request":{"updateMethods":["/a/B","/c/D","/a/B"]}}`,
		`request.modelFields["/svc/M"]`:  `{"request":{"modelFields":{"/svc/M":"1","/svc/M":"2"}}}`,
		`request.modelFields["/svc/\*"]`: `{"request":{"modelFields":{"/svc/*":"1","/svc/M":"2","/svc/*":"3"}}}`,
	} {
		_, err := f.Dial(rig.Setup{Config: config})
		require.ErrorContains(t, err, strings.ReplaceAll(path, `\`, ``), "%s", config)
		require.Error(t, balancer.Lint(config))
	}
	for _, fields := range []string{`"/svc/*":"1","/svc/M":"2"`, `"/svc/M":"2","/svc/*":"1"`} {
		c := f.Client(rig.Setup{
			Config:  `{"request":{"modelFields":{` + fields + `}}}`,
			Options: interceptors,
		})
		c.Ready(2)
		for i := range 50 {
			msg := &apipb.Mixin{Name: rig.Model(i), Root: rig.Model(i + 1)} // fields 1 and 2
			for method, want := range map[string]string{"/svc/Other": msg.Name, "/svc/M": msg.Root} {
				var d picker.Decision
				require.NoError(t, c.Invoke(t.Context(), method, msg, &wrapperspb.StringValue{}, mlbalancer.WithDecision(&d)))
				require.Equal(t, want, d.Model, method)
			}
		}
	}
}

// interceptors are those of mlbalancer.DialOptions, without its service config.
var interceptors = []grpc.DialOption{
	grpc.WithChainUnaryInterceptor(mlbalancer.UnaryClientInterceptor()),
	grpc.WithChainStreamInterceptor(mlbalancer.StreamClientInterceptor()),
}

// A policy that is not there must not become pick_first in silence (grpc/grpc-go#6100).
func TestCONF06(t *testing.T) {
	t.Parallel()
	f := rig.New(t, 3)
	for _, name := range []string{"Model_Aware", "MODEL_AWARE", "model-aware", "model_awar", "mlbalancer.nothing"} {
		_, err := f.Dial(rig.Setup{Config: fmt.Sprintf(`{"loadBalancingConfig":[{%q:{}}]}`, name)})
		require.ErrorContains(t, err, name)
		require.Error(t, balancer.Lint(fmt.Sprintf(`{"loadBalancingConfig":[{%q:{}}]}`, name)))
		// gRPC itself takes an unknown name in the legacy form for pick_first; Lint finds it.
		require.Error(t, balancer.Lint(fmt.Sprintf(`{"loadBalancingPolicy":%q}`, name)))
	}
	for _, config := range []string{
		`{"loadBalancingConfig":[{"unknown_to_all":{}},{"model_aware":{}}]}`,
		`{"loadBalancingPolicy":"model_aware"}`,
	} {
		c := f.Client(rig.Setup{Config: config})
		c.Ready(3)
		require.Equal(t, rig.ModelAware(t, `{}`, f.Endpoints()...).Map(rig.Models(300)), served(t, c, 300), "%s", config)
	}
}

// Registration must neither depend on order nor race (go-kratos/kratos#3842), and channels share no settings.
func TestCONF07(t *testing.T) {
	t.Parallel()
	require.NoError(t, early.Err, "a call from an init function")
	t.Run("channels come and go", func(t *testing.T) { inBubble(t, testComeAndGo) })
	t.Run("two at the same time", func(t *testing.T) { inBubble(t, testTwoConfigs) })
}

func testComeAndGo(t *testing.T) {
	f := rig.New(t, 4)
	const sample = 40
	ids := rig.Models(sample)
	configs := make([]string, 5)
	maps := make([][]string, len(configs))
	for i := range configs {
		configs[i] = fmt.Sprintf(`{"request":{"modelHeaders":["x-model-%d"]},"ring":{"virtualNodes":%d}}`, i, 10+50*i)
		maps[i] = rig.ModelAware(t, fmt.Sprintf(`{"ring":{"virtualNodes":%d}}`, 10+50*i), f.Endpoints()...).Map(ids)
	}
	rs := rig.Closed(50, 100, func(i int) rig.Result {
		n := i % len(configs)
		c, err := f.Dial(rig.Setup{Config: configs[n]})
		if err != nil {
			return rig.Result{Err: err}
		}
		defer func() { assert.NoError(t, c.Close()) }()
		for m, want := range maps[n] {
			ctx := metadata.AppendToOutgoingContext(t.Context(), fmt.Sprintf("x-model-%d", n), rig.Model(m))
			backend, err := c.Method(ctx, rig.Infer)
			if err != nil {
				return rig.Result{Err: err}
			}
			assert.Equal(t, want, backend+":1", "%s under config %d", rig.Model(m), n)
		}
		return rig.Result{}
	})
	require.Empty(t, rs.Failed(), "%v", rs)
}

func testTwoConfigs(t *testing.T) {
	f := rig.New(t, 4)
	ring, spread := &balancer.Config{}, &balancer.Config{Inference: balancer.StrategyConfig{Strategy: "p2c"}}
	a := f.Client(rig.Setup{Options: mlbalancer.DialOptions(mlbalancer.WithConfig(ring))})
	b := f.Client(rig.Setup{Options: mlbalancer.DialOptions(mlbalancer.WithConfig(spread))})
	for _, c := range []*rig.Client{a, b} {
		c.Ready(4)
	}
	of := func(c *rig.Client) map[string]int {
		rs := rig.Closed(2, 200, func(int) rig.Result { return c.Send("one", limit) })
		require.Empty(t, rs.Failed(), "%v", rs)
		return rs.By()
	}
	assert.Len(t, of(a), 1, "the ring has one home for a model")
	assert.Len(t, of(b), 4)
}

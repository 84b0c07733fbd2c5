package balancer

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mlbalancer/mlbalancer/picker"
)

func TestParseConfigDefaults(t *testing.T) {
	c, err := ParseConfig(json.RawMessage(`{}`))
	require.NoError(t, err)
	require.Equal(t, DefaultConfig(), c)
	require.Equal(t, "affinity", c.Inference.Strategy)
	require.Equal(t, "p2c", c.Update.Strategy)
	require.Equal(t, DefaultModelHeaders(), c.Request.ModelHeaders)
	require.Equal(t, picker.Defaults("ring"), c.options("ring"))
	require.Equal(t, picker.Defaults("affinity"), c.plan().Inference)
}

func TestParseConfigSurvivesARoundTrip(t *testing.T) {
	for _, js := range []string{
		`{}`,
		`{"request":{"modelHeaders":[]}}`,
		`{"request":{"modelHeaders":["X-Model"],"updateMethods":["/a.B/C","/a.D/*"],"modelFields":{"/a.B/C":"1.13"}}}`,
		`{"request":{"affinityHeader":"X-Session_Id"}}`,
		`{"inference":{"strategy":"p2c"},"update":{"strategy":"round_robin"}}`,
		`{"ring":{"virtualNodes":500,"replicas":3,"loadFactor":2},"p2c":{"choices":4}}`,
		`{"ring":null,"request":{"modelFields":null},"unknown":1}`,
		`{"health":{}}`,
		`{"health":{"sources":null}}`,
		`{"health":{"sources":[]}}`,
		`{"health":{"sources":["gpustats","standard"],"interval":"0.25s","staleAfter":"0.5s"}}`,
		`{"health":{"weights":{"errors":1,"latency":0,"gpuMemory":0,"connections":0},"enterUnhealthy":0,"leaveUnhealthy":1,"minDwell":"0s"}}`,
		`{"health":{"panicThreshold":0},"slowStart":{"window":"0s"}}`,
		`{"slowStart":{"window":"1.000000001s"}}`,
		`{"health":null,"slowStart":null}`,
	} {
		c, err := ParseConfig(json.RawMessage(js))
		require.NoError(t, err, js)
		out, err := json.Marshal(c)
		require.NoError(t, err, js)
		again, err := ParseConfig(out)
		require.NoError(t, err, string(out))
		require.Equal(t, c, again, js)
		require.NoError(t, Lint(string(out)), "what we write has no unknown keys")
	}
}

func TestParseConfigRejectsWithPathGotAndWant(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{`{"ring":{"virtualNodes":0}}`, "model_aware: ring.virtualNodes is 0, want"},
		{`{"ring":{"virtualNodes":2147483648}}`, "model_aware: ring.virtualNodes is 2147483648, want"},
		{`{"ring":{"virtualNodes":"150"}}`, `model_aware: ring.virtualNodes is "150", want an integer`},
		{`{"ring":{"replicas":-1}}`, "model_aware: ring.replicas is -1, want"},
		{`{"ring":{"loadFactor":1}}`, "model_aware: ring.loadFactor is 1, want"},
		{`{"ring":{"loadFactor":"NaN"}}`, `model_aware: ring.loadFactor is "NaN", want a number`},
		{`{"ring":[]}`, "model_aware: ring is [], want an object"},
		{`{"ring":{},"ring":{}}`, "model_aware: ring is given twice, want one value"},
		{`{"p2c":{"choices":1}}`, "model_aware: p2c.choices is 1, want"},
		{`{"p2c":{"choices":1000000}}`, "model_aware: p2c.choices is 1000000, want"},
		{`{"inference":{"strategy":"rnig"}}`, `model_aware: inference.strategy is "rnig", want one of`},
		{`{"update":{"strategy":7}}`, `model_aware: update.strategy is 7, want a string`},
		{`{"request":{"modelHeaders":[""]}}`, `model_aware: request.modelHeaders[0] is "", want`},
		{`{"request":{"modelHeaders":["ok","grpc-foo"]}}`, `model_aware: request.modelHeaders[1] is "grpc-foo", want`},
		{`{"request":{"modelHeaders":["x-bin"]}}`, `model_aware: request.modelHeaders[0] is "x-bin", want`},
		{`{"request":{"modelHeaders":["a b"]}}`, `model_aware: request.modelHeaders[0] is "a b", want`},
		{`{"request":{"modelHeaders":["a","A"]}}`, `model_aware: request.modelHeaders[1] is "a" a second time, want each key once`},
		{`{"request":{"affinityHeader":"x-session-bin"}}`, `model_aware: request.affinityHeader is "x-session-bin", want "" or a metadata key`},
		{`{"request":{"affinityHeader":"grpc-session"}}`, `model_aware: request.affinityHeader is "grpc-session", want`},
		{`{"request":{"affinityHeader":["x"]}}`, `model_aware: request.affinityHeader is ["x"], want a string`},
		{`{"request":{"updateMethods":["Load"]}}`, `model_aware: request.updateMethods[0] is "Load", want "/service/Method" or "/service/*"`},
		{`{"request":{"updateMethods":["/a/B","/a/B"]}}`, `model_aware: request.updateMethods[1] is "/a/B" a second time`},
		{`{"request":{"modelFields":{"/a/B":"one"}}}`, `model_aware: request.modelFields["/a/B"] is "one", want a path of field numbers`},
		{`{"request":{"modelFields":{"B":"1"}}}`, `model_aware: request.modelFields.B is set for "B", want a key`},
		{`[]`, "model_aware: the document is [], want an object"},
	} {
		t.Run(tc.in, func(t *testing.T) {
			_, err := ParseConfig(json.RawMessage(tc.in))
			require.ErrorContains(t, err, tc.want)
			require.Error(t, Lint(tc.in))
		})
	}
}

func TestTypedConfigZeroValuesAreDefaults(t *testing.T) {
	c := &Config{Strategies: []picker.Options{&picker.RingOptions{Replicas: 4}}}
	require.NoError(t, c.Validate())
	var sc struct {
		LoadBalancingConfig []map[string]json.RawMessage `json:"loadBalancingConfig"`
	}
	require.NoError(t, json.Unmarshal([]byte(c.ServiceConfig()), &sc))
	parsed, err := ParseConfig(sc.LoadBalancingConfig[0][Name])
	require.NoError(t, err)
	want := picker.Defaults("ring").(*picker.RingOptions)
	want.Replicas = 4
	require.Equal(t, want, parsed.options("ring"))

	bad := &Config{Strategies: []picker.Options{&picker.RingOptions{Replicas: -4}}}
	require.ErrorContains(t, bad.Validate(), "ring.replicas is -4")
}

func TestLint(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"good section", `{"ring":{"replicas":3}}`, ""},
		{"good service config", `{"loadBalancingConfig":[{"model_aware":{}}]}`, ""},
		{"misspelt", `{"loadBalancingConfig":[{"model_aware":{"ring":{"replica":3}}}]}`, "model_aware: ring.replica is not a known key"},
		{"wrong case", `{"Ring":{}}`, "model_aware: Ring is not a known key"},
		{"wrong level", `{"virtualNodes":3}`, "model_aware: virtualNodes is not a known key"},
		{"in a child policy", `{"loadBalancingConfig":[{"outlier_detection_experimental":{"childPolicy":[{"model_aware":{"x":1}}]}}]}`, "model_aware: x is not a known key"},
		{"not there", `{"loadBalancingConfig":[{"round_robin":{}}]}`, "model_aware: loadBalancingConfig does not name the policy"},
		{"good header", `{"request":{"affinityHeader":"x-session"}}`, ""},
		{"every typo", `{"a":1,"ring":{"b":2}}`, "model_aware: a is not a known key\nmodel_aware: ring.b is not a known key"},
		{"no JSON", `x`, "model_aware: the document is x, want an object"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := Lint(tc.in)
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, tc.want)
		})
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"ring":{"virtualNodes":150,"replicas":2,"loadFactor":1.25},"p2c":{"choices":2}}`))
	f.Add([]byte(`{"request":{"modelHeaders":["x"],"affinityHeader":"y","updateMethods":["/a/*"],"modelFields":{"/a/B":"1.2"}},"inference":{"strategy":"ring"}}`))
	f.Add([]byte(`{"health":{"sources":["oip"],"interval":"2s","staleAfter":"6s","weights":{"errors":1,"gpuMemory":0.5},"minDwell":"1s"}}`))
	f.Add([]byte(`{"health":{"sources":[],"enterUnhealthy":0.1,"leaveUnhealthy":0.9,"panicThreshold":1},"slowStart":{"window":"90s"}}`))
	f.Add([]byte(`{"health":{"sources":null,"weights":null},"slowStart":{}}`))
	f.Add([]byte(`{"breaker":{"openFor":"2s","sequential":false,"codes":{"UNKNOWN":"caller-fault"}}}`))
	f.Fuzz(func(t *testing.T, js []byte) {
		c, err := ParseConfig(js)
		if err != nil {
			return
		}
		out, err := json.Marshal(c)
		require.NoError(t, err)
		again, err := ParseConfig(out)
		require.NoError(t, err)
		require.Equal(t, c, again)
	})
}

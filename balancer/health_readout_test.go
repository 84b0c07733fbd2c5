package balancer

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mlbalancer/mlbalancer/breaker"
	"github.com/mlbalancer/mlbalancer/health"
	"github.com/mlbalancer/mlbalancer/health/monitor"
	"github.com/mlbalancer/mlbalancer/picker"
)

// everything is a report that says all that a report can.
var everything = health.Report{
	Server:   health.ServerReady,
	Interval: time.Second,
	Models:   []health.Model{{Name: "m", State: health.ModelReady}},
	Load: health.Load{
		Has:    health.HasVictim<<1 - 1,
		Active: 3, Waiting: 0, Workers: 4, Connections: 7, Utilization: .5, QueueDelay: 20 * time.Millisecond, MemoryFree: .25,
		LaneFree: time.Second, LoadTime: 5 * time.Second, Victim: health.VictimIdle, VictimAge: time.Minute,
	},
}

func TestHealthReadOut(t *testing.T) {
	t.Parallel()
	const now = int64(time.Hour)
	g := picker.NewGuard(breaker.DefaultConfig(), rand.Uint64)
	busy := everything
	busy.Load = health.Load{Has: health.HasWaiting | health.HasVictim, Victim: health.VictimBusy}
	for _, tc := range []struct {
		name   string
		report *health.Report
		want   string
	}{
		{"nothing", nil, `{"server":"ready","score":1,"parts":{},"slow_start":1}`},
		{"ready", &health.Report{Server: health.ServerReady},
			`{"server":"ready","sources":{"oip":"ready"},"score":1,"parts":{},"slow_start":1}`},
		{"not ready", &health.Report{Server: health.ServerNotReady},
			`{"server":"starting","sources":{"oip":"not ready"},"score":1,"parts":{},"slow_start":1}`},
		{"draining", &health.Report{Server: health.ServerDraining},
			`{"server":"draining","sources":{"oip":"draining"},"score":1,"parts":{},"slow_start":1}`},
		{"models alone", &health.Report{Complete: true},
			`{"server":"ready","sources":{"oip":"unknown"},"score":1,"parts":{},"slow_start":1}`},
		{"everything", &everything, `{"server":"ready","sources":{"oip":"ready"},"score":1,"parts":{},"slow_start":1,"load":{
			"age_ns":2000000000,"active":3,"waiting":0,"workers":4,"connections":7,"utilization":0.5,"queue_delay_ns":20000000,
			"memory_free":0.25,"lane_free_ns":0,"load_time_ns":5000000000,"victim":{"kind":"idle","unused_for_ns":62000000000}}}`},
		{"zero is something", &busy, `{"server":"ready","sources":{"oip":"ready"},"score":1,"parts":{},"slow_start":1,
			"load":{"age_ns":2000000000,"waiting":0,"victim":{"kind":"busy"}}}`},
	} {
		e := picker.NewEndpoint("e")
		if tc.report != nil {
			g.Report(e, number(t, "oip"), now, tc.report)
		}
		state := readHealth(e, now+int64(2*time.Second))
		js, err := json.Marshal(state)
		require.NoError(t, err)
		assert.JSONEq(t, tc.want, string(js), tc.name)
		var back HealthState
		require.NoError(t, json.Unmarshal(js, &back))
		assert.Equal(t, state, back, tc.name)
	}
}

// number returns a source's number.
func number(t *testing.T, source string) int {
	for i, name := range monitor.Names() {
		if name == source {
			return i
		}
	}
	require.FailNow(t, "no source", source)
	return 0
}

func TestPartsInJSON(t *testing.T) {
	t.Parallel()
	known := func(v float64) health.Part { return health.Part{Value: v, Known: true} }
	for want, parts := range map[string]health.Parts{
		`{}`:                               {},
		`{"errors":0,"latency":0.5}`:       {Errors: known(0), Latency: known(.5)},
		`{"gpu_memory":1,"connections":1}`: {GPUMemory: known(1), Connections: known(1)},
	} {
		js, err := json.Marshal(parts)
		require.NoError(t, err)
		assert.Equal(t, want, string(js))
		var back health.Parts
		require.NoError(t, json.Unmarshal(js, &back))
		assert.Equal(t, parts, back)
	}
	parts := health.Parts{Errors: known(1)}
	require.NoError(t, json.Unmarshal([]byte(`{"errors":null}`), &parts))
	assert.Equal(t, health.Parts{}, parts)
	assert.Error(t, json.Unmarshal([]byte(`{"errors":"good"}`), &parts))
	js, err := json.Marshal(health.Part{})
	require.NoError(t, err)
	assert.Equal(t, "null", string(js))
}

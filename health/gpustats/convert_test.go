package gpustats

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mlbalancer/mlbalancer/health"
	"github.com/mlbalancer/mlbalancer/picker"
	gpb "github.com/mlbalancer/mlbalancer/proto/mlbalancer/gpustats/v1"
)

var now = time.Date(2030, 1, 2, 3, 4, 5, 6, time.UTC)

func reported(m *gpb.NodeReport) *health.Report {
	c := converter{interval: time.Second}
	c.convert(&gpb.NodeReport{SampledAt: timestamppb.New(now)}, now) // the clocks agree
	return c.convert(m, now)
}

func TestConvertAll(t *testing.T) {
	t.Parallel()
	five := durationpb.New(5 * time.Second)
	got := reported(&gpb.NodeReport{
		SampledAt: timestamppb.New(now.Add(-2 * time.Second)), Sequence: proto.Uint64(9),
		State:    gpb.ServerState_SERVER_STATE_READY.Enum(),
		InFlight: proto.Int64(3), Waiting: proto.Int64(0), Connections: proto.Int64(12), Concurrency: proto.Int64(4),
		Utilization: proto.Float64(1.5), QueueDelay: durationpb.New(20 * time.Millisecond),
		Gpus: []*gpb.GPU{
			{MemoryTotalBytes: proto.Int64(80), MemoryFreeBytes: proto.Int64(10), Healthy: proto.Bool(true)},
			{MemoryTotalBytes: proto.Int64(40), MemoryUsedBytes: proto.Int64(20)},
			{MemoryTotalBytes: proto.Int64(80), MemoryFreeBytes: proto.Int64(80), Healthy: proto.Bool(false)},
		},
		Models: []*gpb.Model{
			{Name: proto.String("a"), State: gpb.ModelState_MODEL_STATE_READY.Enum(), ServiceTime: durationpb.New(time.Second)},
			{Name: proto.String("b"), State: gpb.ModelState_MODEL_STATE_LOADING.Enum(), LoadEta: five},
			{Name: proto.String("c"), State: gpb.ModelState_MODEL_STATE_UNLOADING.Enum(), LoadEta: five},
			{Name: proto.String("d"), State: gpb.ModelState_MODEL_STATE_UNAVAILABLE.Enum()},
			{Name: proto.String("e"), State: gpb.ModelState_MODEL_STATE_ABSENT.Enum()},
			{Name: proto.String("f"), State: gpb.ModelState(77).Enum()},
			{Name: proto.String("g")},
		},
		LoadsOnDemand: proto.Bool(true), LaneFreeIn: durationpb.New(3 * time.Second), LoadTime: durationpb.New(6 * time.Second),
		Victim: &gpb.Victim{
			Kind: gpb.Victim_KIND_IDLE.Enum(), Model: proto.String("a"), LastUsedAge: durationpb.New(time.Minute),
		},
	})
	assert.Equal(t, &health.Report{
		Server: health.ServerReady, Firsthand: true,
		Load: health.Load{
			Has: health.HasActive | health.HasWaiting | health.HasWorkers | health.HasConnections | health.HasUtilization |
				health.HasQueueDelay | health.HasMemoryFree | health.HasLaneFree | health.HasLoadTime | health.HasVictim,
			Active: 3, Waiting: 0, Workers: 4, Connections: 12, Utilization: 1.5, QueueDelay: 20 * time.Millisecond,
			MemoryFree: .25, LaneFree: time.Second, LoadTime: 6 * time.Second,
			Victim: health.VictimIdle, VictimAge: 62 * time.Second, VictimModel: picker.Key("a"),
		},
		Models: []health.Model{
			{Name: "a", State: health.ModelReady, Service: time.Second},
			{Name: "b", State: health.ModelLoading, ETA: 3 * time.Second},
			{Name: "c", State: health.ModelUnavailable},
			{Name: "d", State: health.ModelUnavailable},
			{Name: "e", State: health.ModelAbsent},
			{Name: "f", State: health.ModelUnknown},
			{Name: "g", State: health.ModelUnknown},
		},
		Complete: true, OnDemand: health.Yes, Interval: time.Second, Age: 2 * time.Second,
	}, got)
}

// What is absent, and what cannot be, says nothing.
func TestConvertNothing(t *testing.T) {
	t.Parallel()
	days := func(n int64) *durationpb.Duration { return &durationpb.Duration{Seconds: n * 86400} }
	for name, m := range map[string]*gpb.NodeReport{
		"absent": {},
		"negative": {
			InFlight: proto.Int64(-1), Waiting: proto.Int64(-1), Connections: proto.Int64(-5), Concurrency: proto.Int64(0),
			Utilization: proto.Float64(-.1), QueueDelay: durationpb.New(-1), LaneFreeIn: durationpb.New(-1),
			LoadTime: durationpb.New(0),
			Gpus: []*gpb.GPU{{
				MemoryTotalBytes: proto.Int64(-1), MemoryFreeBytes: proto.Int64(-1), MemoryUsedBytes: proto.Int64(-1),
			}},
		},
		"huge": {
			InFlight: proto.Int64(math.MaxInt64), Waiting: proto.Int64(1 << 31), Connections: proto.Int64(1 << 40),
			Concurrency: proto.Int64(1 << 31), Utilization: proto.Float64(100.5), QueueDelay: days(366), LaneFreeIn: days(366),
			LoadTime: days(1e9), Gpus: []*gpb.GPU{{MemoryTotalBytes: proto.Int64(10), MemoryFreeBytes: proto.Int64(11)}},
		},
		"no numbers": {
			Utilization: proto.Float64(math.NaN()), QueueDelay: &durationpb.Duration{Seconds: 1, Nanos: -1},
			LaneFreeIn: &durationpb.Duration{Nanos: 2e9}, LoadTime: &durationpb.Duration{Seconds: math.MinInt64},
			Gpus:   []*gpb.GPU{{MemoryTotalBytes: proto.Int64(0), MemoryFreeBytes: proto.Int64(0)}, {}},
			Victim: &gpb.Victim{Model: proto.String("m"), LastUsedAge: durationpb.New(time.Second)},
		},
		"infinite": {
			Utilization: proto.Float64(math.Inf(1)), State: gpb.ServerState(99).Enum(),
			Gpus: []*gpb.GPU{
				{MemoryUsedBytes: proto.Int64(1), MemoryTotalBytes: proto.Int64(0)}, {MemoryUsedBytes: proto.Int64(5)},
			},
			Victim: &gpb.Victim{Kind: gpb.Victim_Kind(9).Enum()},
		},
	} {
		assert.Equal(t, &health.Report{Interval: time.Second}, reported(m), name)
	}
}

func TestConvertServerState(t *testing.T) {
	t.Parallel()
	const starting, ready = gpb.ServerState_SERVER_STATE_STARTING, gpb.ServerState_SERVER_STATE_READY
	const draining, unhealthy = gpb.ServerState_SERVER_STATE_DRAINING, gpb.ServerState_SERVER_STATE_UNHEALTHY
	broken, sound, unsaid := &gpb.GPU{Healthy: proto.Bool(false)}, &gpb.GPU{Healthy: proto.Bool(true)}, &gpb.GPU{}
	for name, tc := range map[string]struct {
		state gpb.ServerState
		gpus  []*gpb.GPU
		want  health.ServerState
	}{
		"starting":               {starting, nil, health.ServerNotReady},
		"ready":                  {ready, nil, health.ServerReady},
		"draining":               {draining, []*gpb.GPU{broken}, health.ServerDraining},
		"unhealthy":              {unhealthy, []*gpb.GPU{sound}, health.ServerNotReady},
		"one broken":             {ready, []*gpb.GPU{broken, sound}, health.ServerReady},
		"one that is not said":   {ready, []*gpb.GPU{broken, unsaid}, health.ServerReady},
		"all broken":             {ready, []*gpb.GPU{broken, broken}, health.ServerNotReady},
		"all broken, and unsaid": {0, []*gpb.GPU{broken}, health.ServerNotReady},
		"unsaid":                 {0, []*gpb.GPU{sound}, health.ServerUnknown},
	} {
		assert.Equal(t, tc.want, reported(&gpb.NodeReport{State: tc.state.Enum(), Gpus: tc.gpus}).Server, name)
	}
}

// Servers' clocks need not agree with ours, nor stay as they are: a report is as old as it is beyond the youngest.
func TestClocksNeedNotAgree(t *testing.T) {
	t.Parallel()
	for _, behind := range []time.Duration{0, 10 * time.Second, 45 * time.Second, time.Hour, -10 * time.Second} {
		c := converter{interval: time.Second}
		at := now
		age := func(took, behind time.Duration) time.Duration {
			at = at.Add(time.Second)
			return c.convert(&gpb.NodeReport{SampledAt: timestamppb.New(at.Add(-took - behind))}, at).Age
		}
		assert.Zero(t, age(0, behind), "%v: the first", behind)
		assert.Zero(t, age(0, behind), "%v: the clocks are apart, and the report is young", behind)
		assert.InDelta(t, 3*time.Second, age(3*time.Second, behind), float64(100*time.Millisecond), "%v: it took its time", behind)
		assert.Zero(t, age(0, behind-20*time.Second), "%v: the clock is set forward", behind)
		assert.InDelta(t, 20*time.Second, age(0, behind), float64(100*time.Millisecond), "%v: the clock is set back", behind)
		for range 380 {
			age(0, behind)
		}
		assert.InDelta(t, time.Second, age(0, behind), float64(100*time.Millisecond), "%v: which is forgotten", behind)
		assert.Zero(t, age(0, behind+2*time.Hour), "%v: a clock that is an hour back was set", behind)
	}
}

// A report is as old as the clocks say, if that can be.
func TestConvertAge(t *testing.T) {
	t.Parallel()
	loading := func(sampledAt *timestamppb.Timestamp) *health.Report {
		return reported(&gpb.NodeReport{
			SampledAt: sampledAt, LaneFreeIn: durationpb.New(10 * time.Second),
			Models: []*gpb.Model{{
				Name: proto.String("m"), State: gpb.ModelState_MODEL_STATE_LOADING.Enum(),
				LoadEta: durationpb.New(20 * time.Second),
			}},
		})
	}
	for name, tc := range map[string]struct {
		at             *timestamppb.Timestamp
		age, lane, eta time.Duration
	}{
		"unknown":       {nil, 0, 10 * time.Second, 20 * time.Second},
		"now":           {timestamppb.New(now), 0, 10 * time.Second, 20 * time.Second},
		"old":           {timestamppb.New(now.Add(-4 * time.Second)), 4 * time.Second, 6 * time.Second, 16 * time.Second},
		"over":          {timestamppb.New(now.Add(-30 * time.Second)), 30 * time.Second, 0, soon},
		"in the future": {timestamppb.New(now.Add(time.Second)), 0, 10 * time.Second, 20 * time.Second},
		"too old":       {timestamppb.New(now.Add(-time.Minute)), 0, 10 * time.Second, 20 * time.Second},
		"no time":       {&timestamppb.Timestamp{Seconds: math.MaxInt64, Nanos: -1}, 0, 10 * time.Second, 20 * time.Second},
	} {
		got := loading(tc.at)
		assert.Equal(t, tc.age, got.Age, name)
		assert.Equal(t, tc.lane, got.Load.LaneFree, name)
		assert.Equal(t, tc.eta, got.Models[0].ETA, name)
	}
}

func TestConvertVictim(t *testing.T) {
	t.Parallel()
	const room, idle, busy = gpb.Victim_KIND_ROOM, gpb.Victim_KIND_IDLE, gpb.Victim_KIND_BUSY
	long := string(make([]byte, maxName+1))
	for name, tc := range map[string]struct {
		victim *gpb.Victim
		want   health.Load
	}{
		"room": {&gpb.Victim{Kind: room.Enum(), Model: proto.String("m")}, health.Load{Victim: health.VictimNone}},
		"idle": {&gpb.Victim{Kind: idle.Enum()}, health.Load{Victim: health.VictimIdle}},
		"busy": {&gpb.Victim{Kind: busy.Enum()}, health.Load{Victim: health.VictimBusy}},
		"busy with a name": {
			&gpb.Victim{Kind: busy.Enum(), Model: proto.String("m")},
			health.Load{Victim: health.VictimBusy, VictimModel: picker.Key("m")},
		},
		"a long name": {&gpb.Victim{Kind: busy.Enum(), Model: &long}, health.Load{Victim: health.VictimBusy}},
	} {
		tc.want.Has = health.HasVictim
		assert.Equal(t, tc.want, reported(&gpb.NodeReport{Victim: tc.victim}).Load, name)
	}
}

func TestConvertComplete(t *testing.T) {
	t.Parallel()
	m := []*gpb.Model{{Name: proto.String("m")}}
	long := []*gpb.Model{{Name: proto.String("m")}, {Name: proto.String(string(make([]byte, maxName+1)))}}
	version := []*gpb.Model{{Name: proto.String("m"), Version: proto.String(string(make([]byte, maxName)))}}
	for name, tc := range map[string]struct {
		models   []*gpb.Model
		said     *bool
		filtered bool
		want     bool
	}{
		"some":               {m, nil, false, true},
		"none":               {nil, nil, false, false},
		"none at all":        {nil, proto.Bool(true), false, true},
		"not all":            {m, proto.Bool(false), false, false},
		"asked for some":     {m, proto.Bool(true), true, false},
		"too many":           {make([]*gpb.Model, maxModels+1), nil, false, false},
		"a name too long":    {long, proto.Bool(true), false, false},
		"a version too long": {version, nil, false, false},
	} {
		for i := range tc.models {
			if tc.models[i] == nil {
				tc.models[i] = m[0]
			}
		}
		c := converter{filtered: tc.filtered}
		got := c.convert(&gpb.NodeReport{Models: tc.models, ModelsComplete: tc.said}, now)
		assert.Equal(t, tc.want, got.Complete, name)
		assert.LessOrEqual(t, len(got.Models), 1, name)
	}
	assert.Equal(t, health.No, reported(&gpb.NodeReport{LoadsOnDemand: proto.Bool(false)}).OnDemand)
}

// A model with versions stands for its name as the version that serves soonest does.
func TestConvertVersions(t *testing.T) {
	t.Parallel()
	model := func(name, version string, state gpb.ModelState, eta time.Duration) *gpb.Model {
		return &gpb.Model{Name: &name, Version: &version, State: state.Enum(), LoadEta: durationpb.New(eta)}
	}
	const ready, loading = gpb.ModelState_MODEL_STATE_READY, gpb.ModelState_MODEL_STATE_LOADING
	const absent, unavailable = gpb.ModelState_MODEL_STATE_ABSENT, gpb.ModelState_MODEL_STATE_UNAVAILABLE
	c := converter{}
	m := &gpb.NodeReport{Models: []*gpb.Model{
		model("b", "2", loading, 9*time.Second), model("b", "1", loading, 5*time.Second), model("", "1", ready, 0),
		model("a", "1", unavailable, 0), model("a", "2", ready, 0), model("c", "1", unavailable, 0), model("c", "2", absent, 0),
		model("d", "", ready, 0), model("d", "", absent, 0), model("e", "1", 0, 0), model("e", "2", absent, 0),
	}}
	for range 2 {
		assert.Equal(t, []health.Model{
			{Name: "a", State: health.ModelReady},
			{Name: "a:1", State: health.ModelUnavailable}, {Name: "a:2", State: health.ModelReady},
			{Name: "b", State: health.ModelLoading, ETA: 5 * time.Second},
			{Name: "b:1", State: health.ModelLoading, ETA: 5 * time.Second},
			{Name: "b:2", State: health.ModelLoading, ETA: 9 * time.Second},
			{Name: "c", State: health.ModelAbsent},
			{Name: "c:1", State: health.ModelUnavailable}, {Name: "c:2", State: health.ModelAbsent},
			{Name: "d", State: health.ModelReady},
			{Name: "e"}, {Name: "e:1"}, {Name: "e:2", State: health.ModelAbsent},
		}, c.convert(m, now).Models)
	}
	// Another model in the place of one gets a name of its own.
	got := c.convert(&gpb.NodeReport{Models: []*gpb.Model{model("x", "2", ready, 0)}}, now)
	assert.Equal(t, []health.Model{{Name: "x", State: health.ModelReady}, {Name: "x:2", State: health.ModelReady}}, got.Models)
}

package gpustats

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mlbalancer/mlbalancer/health"
	gpb "github.com/mlbalancer/mlbalancer/proto/mlbalancer/gpustats/v1"
)

// FuzzConvert: whatever a server sends, a report holds only what a report may hold, and nothing of the one before.
func FuzzConvert(f *testing.F) {
	seed, err := proto.Marshal(fifty(true))
	require.NoError(f, err)
	f.Add(seed)
	seed, err = proto.Marshal(&gpb.NodeReport{
		SampledAt: timestamppb.New(now), InFlight: proto.Int64(-1), Utilization: proto.Float64(1e300),
		LaneFreeIn: durationpb.New(-1),
		Gpus: []*gpb.GPU{
			{MemoryUsedBytes: proto.Int64(1 << 62), MemoryFreeBytes: proto.Int64(1 << 62)}, {Healthy: proto.Bool(false)},
		},
		Victim: &gpb.Victim{Kind: gpb.Victim_KIND_IDLE.Enum(), LastUsedAge: durationpb.New(1)},
		Models: []*gpb.Model{{Name: proto.String("b"), Version: proto.String("1")}, {Name: proto.String("b")}, {}},
	})
	require.NoError(f, err)
	f.Add(seed)
	used := converter{interval: time.Second}
	f.Fuzz(func(t *testing.T, b []byte) {
		m := new(gpb.NodeReport)
		if proto.Unmarshal(b, m) != nil {
			return
		}
		r := used.convert(m, now)
		fresh := converter{interval: time.Second}
		again := fresh.convert(m, now)
		require.True(t, slices.Equal(again.Models, r.Models))
		again.Models = r.Models
		require.Equal(t, again, r)
		check(t, r)
	})
}

// check checks what holds of every report.
func check(t *testing.T, r *health.Report) {
	l := r.Load
	for _, n := range []int{l.Active, l.Waiting, l.Workers, l.Connections} {
		assert.True(t, n >= 0 && n <= maxCount, "a count is %v", n)
	}
	for _, d := range []time.Duration{l.QueueDelay, l.LaneFree, l.LoadTime, l.VictimAge, r.Age} {
		assert.True(t, d >= 0 && d <= maxTime+maxAge, "a time is %v", d)
	}
	assert.True(t, l.Utilization >= 0 && l.Utilization <= maxUtilization, "the utilization is %v", l.Utilization)
	assert.True(t, l.MemoryFree >= 0 && l.MemoryFree <= 1, "the share of free memory is %v", l.MemoryFree)
	assert.LessOrEqual(t, len(r.Models), 2*maxModels)
	for i, m := range r.Models {
		assert.True(t, m.Name != "" && len(m.Name) <= maxName, "a name is %q", m.Name)
		assert.True(t, i == 0 || r.Models[i-1].Name < m.Name, "%q is there twice, or out of order", m.Name)
		assert.True(t, m.Service >= 0 && m.Service <= maxTime && m.ETA >= 0 && m.ETA <= maxTime)
		assert.True(t, m.ETA == 0 || m.State == health.ModelLoading)
	}
}

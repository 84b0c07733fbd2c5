package gpustats

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	gpb "github.com/mlbalancer/mlbalancer/proto/mlbalancer/gpustats/v1"
)

// fifty returns a report of 50 models that says all that a health.Report can hold.
func fifty(versions bool) *gpb.NodeReport {
	m := &gpb.NodeReport{
		SampledAt: timestamppb.New(now.Add(-time.Second)), State: gpb.ServerState_SERVER_STATE_READY.Enum(),
		InFlight: proto.Int64(3), Waiting: proto.Int64(2), Connections: proto.Int64(12), Concurrency: proto.Int64(4),
		Utilization: proto.Float64(.9), QueueDelay: durationpb.New(20 * time.Millisecond),
		LoadsOnDemand: proto.Bool(true), LaneFreeIn: durationpb.New(3 * time.Second), LoadTime: durationpb.New(6 * time.Second),
		Victim: &gpb.Victim{
			Kind: gpb.Victim_KIND_IDLE.Enum(), Model: proto.String("model-0"), LastUsedAge: durationpb.New(time.Minute),
		},
	}
	for range 8 {
		m.Gpus = append(m.Gpus, &gpb.GPU{
			MemoryTotalBytes: proto.Int64(80 << 30), MemoryUsedBytes: proto.Int64(60 << 30), Healthy: proto.Bool(true),
		})
	}
	for i := range 50 {
		model := &gpb.Model{
			Name: proto.String(fmt.Sprintf("model-%03d", i)), State: gpb.ModelState_MODEL_STATE_READY.Enum(),
			ServiceTime: durationpb.New(250 * time.Millisecond),
		}
		if i%10 == 0 {
			model.State, model.LoadEta = gpb.ModelState_MODEL_STATE_LOADING.Enum(), durationpb.New(5*time.Second)
		}
		if versions {
			model.Version = proto.String("1")
		}
		m.Models = append(m.Models, model)
	}
	return m
}

// A report costs nothing but time once there was one like it.
func TestConvertAllocatesNothing(t *testing.T) {
	shuffled := fifty(true)
	shuffled.Models[3], shuffled.Models[40] = shuffled.Models[40], shuffled.Models[3]
	for name, m := range map[string]*gpb.NodeReport{"models": fifty(false), "versions": fifty(true), "in any order": shuffled} {
		c := converter{interval: time.Second}
		assert.Zero(t, testing.AllocsPerRun(100, func() { c.convert(m, now) }), name)
	}
}

func BenchmarkReport(b *testing.B) {
	for _, tc := range []struct {
		name string
		m    *gpb.NodeReport
	}{{"models=50", fifty(false)}, {"models=50/versions", fifty(true)}} {
		b.Run(tc.name, func(b *testing.B) {
			c := converter{interval: time.Second}
			b.ReportAllocs()
			for b.Loop() {
				c.convert(tc.m, now)
			}
		})
	}
}

package peers

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/mlbalancer/mlbalancer/health"
	gpb "github.com/mlbalancer/mlbalancer/proto/mlbalancer/gpustats/v1"
)

const (
	// heldModels is how many models a server holds whose reports are measured.
	heldModels = 20
	// observed is for how long the processor is watched.
	observed = 5 * time.Second
)

// BenchmarkHealth measures what it takes of the processor to hear of a thousand servers how they are once a second, and to look after them ten
// times a second, while no calls are made. Its ns are those of the processor for each second. The control has the same servers report in the
// same way, and reads nothing of it. Neither has a transport below.
func BenchmarkHealth(b *testing.B) {
	told := modelAwareTold
	told.told = large * heldModels / copies
	b.Run("model_aware/n=1000", func(b *testing.B) {
		newFleet(b, told, large)
		watchProcessor(b)
	})
	b.Run("control/n=1000", func(b *testing.B) {
		server := servers(told, large)
		ctx, cancel := context.WithCancel(b.Context())
		var wg sync.WaitGroup
		for i := range large {
			conn := server(fmt.Sprintf(addressFormat, 0, i>>8, i&255))
			wg.Go(func() { assert.ErrorIs(b, drop(ctx, conn), context.Canceled) })
		}
		watchProcessor(b)
		cancel()
		wg.Wait()
	})
}

// drop reads nothing of what a server reports.
func drop(ctx context.Context, conn grpc.ClientConnInterface) error {
	stream, err := conn.NewStream(ctx, &gpb.GPUStats_ServiceDesc.Streams[0], gpb.GPUStats_Watch_FullMethodName)
	if err != nil {
		return err
	}
	s := stream.(*reportStream)
	if err := s.SendMsg(&gpb.WatchRequest{Interval: durationpb.New(time.Second)}); err != nil {
		return err
	}
	for err == nil {
		err = s.next()
	}
	return err
}

// watchProcessor reports the time that the process takes of the processor in a second.
func watchProcessor(b *testing.B) {
	time.Sleep(time.Second) // what the start has left behind ends
	var used, all time.Duration
	for b.Loop() {
		began, before := time.Now(), processorTime(b)
		time.Sleep(observed)
		used += processorTime(b) - before
		all += time.Since(began)
	}
	b.ReportMetric(float64(used)/all.Seconds(), "ns/op")
}

// BenchmarkReport measures what becomes of a report once it is decoded, where it says little that is new.
func BenchmarkReport(b *testing.B) {
	for _, n := range []int{4, heldModels, 64} {
		b.Run(fmt.Sprintf("models=%d", n), func(b *testing.B) {
			table, guard := guardedTable(1, true)
			r, now, e := steadyReport(n), int64(time.Hour), table.Member(0).Endpoint
			report := func() {
				now += int64(time.Second)
				r.Load.Active = int(now) & 7
				guard.Report(e, 0, now, &r)
			}
			report()
			fastest(b, 1, 1<<10, func(_, n int) {
				for range n {
					report()
				}
			})
			b.ReportMetric(testing.AllocsPerRun(1000, report), "allocs/op")
		})
	}
}

// BenchmarkWatch measures a look at all endpoints, of which there are ten a second. They have reported.
func BenchmarkWatch(b *testing.B) {
	table, guard := guardedTable(large, true)
	now := int64(time.Hour)
	r := steadyReport(heldModels)
	for i := range large {
		guard.Report(table.Member(i).Endpoint, 0, now, &r)
	}
	b.Run("n=1000", func(b *testing.B) {
		fastest(b, 1, 10, func(_, n int) {
			for range n {
				now += int64(time.Millisecond) // reports last for seconds, of which there would soon be too many
				guard.Watch(table, now)
			}
		})
	})
}

// steadyReport is what a server with a number of models says again and again.
func steadyReport(models int) health.Report {
	r := health.Report{
		Server: health.ServerReady, Complete: true, OnDemand: health.Yes, Interval: time.Hour,
		Load: health.Load{Has: health.HasActive | health.HasWorkers | health.HasConnections | health.HasUtilization | health.HasMemoryFree,
			Workers: 4, MemoryFree: .5},
	}
	for i := range models {
		r.Models = append(r.Models, health.Model{Name: modelName(i), State: health.ModelReady, Service: time.Second})
	}
	return r
}

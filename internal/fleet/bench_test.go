package fleet

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/mlbalancer/mlbalancer/internal/oip"
	gpustatsv1 "github.com/mlbalancer/mlbalancer/proto/mlbalancer/gpustats/v1"
)

// BenchmarkInfer is what the fleet itself costs per call, client and server together: it bounds what can be measured with it. All
// signals are on, and there are four watchers of GPUStats, in the second case.
func BenchmarkInfer(b *testing.B) {
	for _, bench := range []struct {
		name    string
		signals Signals
		watches int
	}{{"signals=none", NoSignals, 0}, {"signals=all", Health | OIP | ORCA | GPUStats, 4}} {
		b.Run(bench.name, func(b *testing.B) {
			f, err := Start(Config{Servers: 1, InMemory: true, Signals: bench.signals})
			require.NoError(b, err)
			b.Cleanup(f.Close)
			f.Servers[0].Preload("m")
			cc, err := grpc.NewClient("passthrough:///"+f.Servers[0].Addr(), f.DialOptions()...)
			require.NoError(b, err)
			b.Cleanup(func() { cc.Close() })
			for range bench.watches {
				watch, err := gpustatsv1.NewGPUStatsClient(cc).Watch(b.Context(), &gpustatsv1.WatchRequest{})
				require.NoError(b, err)
				go func() {
					for err := error(nil); err == nil; {
						_, err = watch.Recv()
					}
				}()
			}
			c := oip.NewClient(cc)
			req := NewRequest("m", 0)
			b.ReportAllocs()
			b.SetParallelism(8)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := c.Infer(b.Context(), req); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

// BenchmarkReport is a report of a server with 30 models in its memory, and of the load in a trailer.
func BenchmarkReport(b *testing.B) {
	f, err := Start(Config{Servers: 1, Slots: 30, InMemory: true, Signals: ORCA | GPUStats})
	require.NoError(b, err)
	b.Cleanup(f.Close)
	s := f.Servers[0]
	for i := range 30 {
		s.Preload(fmt.Sprint("m", i))
	}
	b.Run("gpustats", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s.sample()
		}
	})
	b.Run("orca", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s.update(func() { s.orca() })
		}
	})
}

// BenchmarkGPU is one request through the model of workers and memory, without gRPC.
func BenchmarkGPU(b *testing.B) {
	g := newRig(4, 4)
	models := []string{"a", "b", "c", "d"}
	for _, m := range models {
		g.place(m)
	}
	b.ReportAllocs()
	for i := range b.N {
		g.submit(models[i%len(models)], 10)
		g.advance(g.now + 3)
	}
}

package fleet

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/mlbalancer/mlbalancer/internal/oip"
)

// BenchmarkInfer is what the fleet itself costs per call, client and server together: it bounds what can be measured with it.
func BenchmarkInfer(b *testing.B) {
	f, err := Start(Config{Servers: 1, InMemory: true})
	require.NoError(b, err)
	b.Cleanup(f.Close)
	f.Servers[0].Preload("m")
	cc, err := grpc.NewClient("passthrough:///"+f.Servers[0].Addr(), f.DialOptions()...)
	require.NoError(b, err)
	b.Cleanup(func() { cc.Close() })
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

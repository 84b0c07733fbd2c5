package integration

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/mlbalancer/mlbalancer"
	"github.com/mlbalancer/mlbalancer/integration/rig"
)

// flood sends messages without end.
func flood(sent *atomic.Int64, message proto.Message) rig.Answer {
	return func(stream grpc.ServerStream) error {
		for {
			if err := stream.SendMsg(message); err != nil {
				return err
			}
			sent.Add(1)
		}
	}
}

// Servers that never answer the sources, or never stop to, must leave nothing behind, and be no worse for it.
func TestSourcesEndWithTheChannelWhateverServersDo(t *testing.T) {
	rig.Watchdog(t, time.Minute)
	var sent atomic.Int64
	f := rig.New(t, 4)
	for _, m := range asking {
		message := proto.Message(&emptypb.Empty{})
		if m == rig.HealthWatch {
			message = rig.IsServing(true)
		}
		f.Backends[0].Answers(m, rig.Hangs)
		f.Backends[1].Answers(m, flood(&sent, message))
		f.Backends[2].Answers(m, rig.Says(rig.Hangs, message))
	}
	before := runtime.NumGoroutine()
	for range 10 {
		c := f.Client(rig.Setup{Options: mlbalancer.DialOptions()})
		rs := rig.Closed(4, 400, func(i int) rig.Result { return c.Send(rig.Model(i), limit) })
		require.Empty(t, rs.Failed(), "%v", rs)
		require.Len(t, rs.By(), 4)
		require.NoError(t, c.Close())
	}
	rig.Eventually(t, func() bool { return f.Open() == 0 }, 5*time.Second, "no open connection")
	for _, b := range f.Backends {
		rig.Eventually(t, func() bool { return b.Asking() == 0 }, 5*time.Second, "%s is asked no more", b.Name)
	}
	rig.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+3 }, 5*time.Second, "goroutines are as before")
	require.Positive(t, sent.Load())
}

// A server that says 100,000 times a second how it is must cost little.
func TestAWatchThatFloods(t *testing.T) {
	rig.Watchdog(t, time.Minute)
	const lasts = 2 * time.Second
	var sent atomic.Int64
	f := rig.New(t, 1)
	b := f.Backends[0]
	b.Answers(rig.HealthWatch, func(stream grpc.ServerStream) error {
		const burst = 100 // each millisecond
		t := time.NewTicker(time.Millisecond)
		defer t.Stop()
		for i := 0; ; i++ {
			for range burst {
				if err := stream.SendMsg(rig.IsServing(i%2 == 0)); err != nil {
					return err
				}
				sent.Add(1)
			}
			<-t.C
		}
	})
	heap := inUse()
	c := f.Client(rig.Setup{Options: mlbalancer.DialOptions()})
	c.Connect()
	rig.Eventually(t, func() bool { return b.Asked(rig.HealthWatch) > 0 }, limit, "a watch")
	goroutines := 0
	rig.For(lasts, 50*time.Millisecond, func(int) { goroutines = max(goroutines, runtime.NumGoroutine()) })
	require.LessOrEqual(t, b.Asked(rig.HealthWatch), 4, "cut off, and opened again later each time")
	require.Less(t, int64(inUse())-int64(heap), int64(2<<20), "bytes")
	require.Less(t, goroutines, 100)
	t.Logf("%d messages by %d watches, %d goroutines", sent.Load(), b.Asked(rig.HealthWatch), goroutines)
	require.Positive(t, sent.Load())

	b.Answers(rig.HealthWatch, nil)
	c.Ready(1)
	require.NoError(t, c.Send("m", limit).Err)
}

// inUse returns the bytes that are in use.
func inUse() uint64 {
	runtime.GC()
	runtime.GC() // what the first one only finalised
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

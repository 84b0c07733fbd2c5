package cases

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	gresolver "google.golang.org/grpc/resolver"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/mlbalancer/mlbalancer/integration/rig"
)

// Nothing must outlive the endpoint or the channel that it belongs to (afex/hystrix-go#95). Half of the servers answer all that ask for their
// health, and those streams stay. Hedging, limiters and their waits join with those.
func TestLIFE06(t *testing.T) {
	f := rig.New(t, 10)
	for _, b := range f.Backends[5:] {
		b.Answers(rig.GPUStats, rig.Says(rig.Hangs, ready()))
		b.Answers(rig.LoadReports, rig.Says(rig.Hangs, &emptypb.Empty{}))
		b.HasModels(func() bool { return true }, rig.Model(0), rig.Model(1))
	}
	rig.Watchdog(t, 5*time.Minute)
	cycle := func() {
		c := f.Client(rig.Setup{Options: interceptors})
		for i := range 10 {
			_, err := c.Call(t.Context(), rig.Model(i))
			require.NoError(t, err)
		}
		require.NoError(t, c.Close())
	}
	cycle()
	settled := func(open int, goroutines int) {
		t.Helper()
		rig.Eventually(t, func() bool { return f.Open() == open }, 5*time.Second, "%d open connections", open)
		rig.Eventually(t, func() bool { return runtime.NumGoroutine() <= goroutines+3 }, 5*time.Second,
			"%d goroutines, there are %d", goroutines, runtime.NumGoroutine())
	}
	rig.Eventually(t, func() bool { return f.Open() == 0 }, 5*time.Second, "no open connection")
	goroutines, heap := runtime.NumGoroutine(), heapAfterGC()
	lean := func(part string) {
		t.Helper()
		grown := int64(heapAfterGC()) - int64(heap)
		t.Logf("%s: the heap has grown by %d KB", part, grown>>10)
		assert.LessOrEqual(t, grown, int64(5<<20), "%s", part)
	}

	for range 300 {
		cycle()
	}
	settled(0, goroutines)
	lean("300 channels")

	c := f.Client(rig.Setup{Options: interceptors})
	c.Ready(10)
	warm := func() {
		t.Helper()
		require.NoError(t, c.Send("m", limit).Err)
	}
	warm()
	pause(t.Context(), 3*time.Second) // until servers are asked for the model too
	live := runtime.NumGoroutine()
	eps := f.Endpoints()
	for i := range 2000 {
		eps[i%10] = rig.At(f.Backends[i%10].AddrN(2 + i))
		c.Resolve(eps...)
		if i%10 == 9 {
			warm()
		}
	}
	c.Ready(10)
	settled(10, live)
	require.NoError(t, c.Close())
	settled(0, goroutines)
	lean("2000 endpoints")
	for _, b := range f.Backends {
		require.Zero(t, b.Asking(), "%s is asked no more", b.Name)
	}

	for range 20 {
		during := map[string]func(c *rig.Client){
			"nothing":    func(*rig.Client) {},
			"resolution": func(c *rig.Client) { c.Connect() },
			"connect":    func(c *rig.Client) { c.Resolve(f.Endpoints()...); c.Connect() },
		}
		for what, begin := range during {
			c := f.Client(rig.Setup{Endpoints: []gresolver.Endpoint{}})
			var calls sync.WaitGroup
			calls.Go(func() { c.Send("m", time.Second) })
			begin(c)
			var closing sync.WaitGroup
			var closed atomic.Int64
			for range 2 {
				closing.Go(func() {
					if c.Close() == nil {
						closed.Add(1)
					}
				})
			}
			closing.Wait()
			require.EqualValues(t, 1, closed.Load(), "one Close succeeds, the other says that it is done (%s)", what)
			require.Error(t, c.Close())
			r := c.Send("m", time.Second)
			require.Error(t, r.Err)
			require.Less(t, r.Took, 10*time.Millisecond+f.Pause(), "a call after Close")
			calls.Wait()
		}
	}
	settled(0, goroutines)
	lean("Close at odd moments")
}

// heapAfterGC returns the bytes that are in use after garbage was collected.
func heapAfterGC() uint64 {
	runtime.GC()
	runtime.GC() // what the first one only finalised
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

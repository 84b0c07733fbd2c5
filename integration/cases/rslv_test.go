package cases

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	gresolver "google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer"
	"github.com/mlbalancer/mlbalancer/integration/rig"
	"github.com/mlbalancer/mlbalancer/resolver"
)

// In-memory transports must not trigger DNS look-ups (grpc/grpc-go#7091).
func TestRSLV09(t *testing.T) {
	before := lookups.Load()
	f := rig.NewNamed(t, "bufnet-1", "bufnet-2")
	written, err := resolver.StaticTarget(rig.Named("one", "bufnet-1"), rig.Named("two", "bufnet-2"))
	require.NoError(t, err)
	for _, target := range []string{
		"mlb-static:///bufnet-1",
		"mlb-static:///bufnet-1,bufnet-2",
		"mlb-static:///bufnet-1:8001;weight=2;name=x,bufnet-2:8001",
		written,
		"passthrough:///bufnet-1",
		"", // a resolver of the test's own
	} {
		start := time.Now()
		c := f.Client(rig.Setup{Target: target, Options: mlbalancer.DialOptions()})
		r := c.Send("m", limit)
		require.NoError(t, r.Err, target)
		assert.Less(t, time.Since(start), 100*time.Millisecond+f.Pause(), "the first call to %q", target)
	}
	require.Equal(t, before, lookups.Load(), "look-ups of names")
}

// An empty endpoint list must neither panic nor hang, nor be ignored (grpc/grpc-go#5260).
func TestRSLV10(t *testing.T) {
	t.Parallel()
	const deadline = time.Second
	waiting := grpc.WaitForReady(true)
	refused := func(t *testing.T, r rig.Result) {
		t.Helper()
		require.Equal(t, codes.Unavailable, status.Code(r.Err), "%v", r.Err)
		require.ErrorContains(t, r.Err, "no addresses")
		require.Less(t, r.Took, 100*time.Millisecond)
	}
	for name, config := range map[string]string{"p2c": p2c, "ring": `{}`} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				f := rig.New(t, 3)
				c := f.Client(rig.Setup{Config: config})
				c.Ready(3)
				for range 100 {
					c.Resolve()
					refused(t, c.Send("m", deadline))
					waiters := inBackground(t, 2, func(i int) rig.Result { return c.Send(rig.Model(i), deadline, waiting) })
					plain := inBackground(t, 1, func(i int) rig.Result {
						defer pause(t.Context(), 5*time.Millisecond)
						return c.Send(rig.Model(i), deadline)
					})
					pause(t.Context(), 50*time.Millisecond)
					for _, r := range plain.stop() {
						refused(t, r)
					}
					waiters.cancel() // each worker has one call under way
					c.Resolve(f.Endpoints()...)
					back := time.Now()
					rs := waiters.stop()
					require.Len(t, rs, 2)
					require.Empty(t, rs.Failed(), "%v", rs)
					require.Less(t, time.Since(back), 500*time.Millisecond)
					pause(t.Context(), 50*time.Millisecond)
					require.NoError(t, c.Send("m", deadline).Err)
				}
				c.Ready(3)
				for _, b := range f.Backends {
					require.Equal(t, 1, b.Open(), "connections to %s", b.Name)
				}
			})
		})
		t.Run(name+" from the start", func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				f := rig.New(t, 3)
				c := f.Client(rig.Setup{Config: config, Endpoints: []gresolver.Endpoint{}})
				c.Connect()
				c.Resolve()
				refused(t, c.Send("m", deadline))
				c.ResolveError(errResolver)
				rig.Eventually(t, func() bool { // an error takes effect some time after the resolver reports it
					r := c.Send("m", deadline)
					require.Equal(t, codes.Unavailable, status.Code(r.Err))
					require.Less(t, r.Took, 100*time.Millisecond)
					return strings.Contains(r.Err.Error(), errResolver.Error())
				}, deadline, "the resolver's text")
				r := c.Send("m", deadline, waiting)
				require.Equal(t, codes.DeadlineExceeded, status.Code(r.Err))
				c.Resolve(f.Endpoints()...)
				require.NoError(t, c.Send("m", deadline).Err)
			})
		})
	}
}

// The same addresses in another order must not cause reconnects (grpc/grpc-java#1268).
func TestRSLV11(t *testing.T) { inBubble(t, testRSLV11) }

func testRSLV11(t *testing.T) {
	f := rig.New(t, 10)
	c := f.Client(rig.Setup{})
	c.Ready(10)
	ids := rig.Models(10_000)
	ring := rig.ModelAware(t, `{}`, f.Endpoints()...)
	want := ring.Map(ids)
	pickers := c.Snapshot().Pickers
	traffic := atRate(t, 500, func(i int) rig.Result { return c.Send(rig.Model(i), limit) })
	for range 200 {
		eps := shuffled(f.Endpoints())
		c.Resolve(eps...)
		ring.Update(`{}`, eps...)
		pause(t.Context(), 20*time.Millisecond)
	}
	rs := traffic.stop()
	require.Empty(t, rs.Failed(), "%v", rs)
	for _, r := range rs {
		require.Equal(t, want[r.Index], r.Backend+":1", rig.Model(r.Index))
	}
	require.Equal(t, want, ring.Map(ids))
	require.Equal(t, 10, ring.Conns())
	require.LessOrEqual(t, c.Snapshot().Pickers, pickers+1, "pickers published")
	for _, b := range f.Backends {
		require.Equal(t, 1, b.Accepted(), "connections to %s", b.Name)
	}
}

package interop

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/stats"

	"github.com/mlbalancer/mlbalancer/integration/interop/servers"
	"github.com/mlbalancer/mlbalancer/integration/rig"
)

// tooManyPings is what a server says that feels pestered, before it closes the connection.
const tooManyPings = "too_many_pings"

// Connections without calls are kept, whatever we ask over them: no server finds that it is too much.
func TestAllIdle(t *testing.T) {
	var fleets []*fleet
	for _, k := range []*servers.Kind{servers.Triton, servers.MLServer, servers.KServe} {
		fleets = append(fleets, newFleet(t, k, modelAware))
	}
	var watched sync.WaitGroup
	for _, f := range fleets {
		for _, p := range []policy{modelAware, roundRobin} {
			watched.Go(func() { f.idle(p) })
		}
	}
	watched.Wait()
	assert.Empty(t, logged.Lines(tooManyPings))
	for _, f := range fleets {
		assert.NotContains(t, f.a.Log(1000), tooManyPings)
		assert.NotContains(t, f.b.Log(1000), tooManyPings)
	}
}

// idle leaves a channel under a policy alone for long enough, and calls the models at the end.
func (f *fleet) idle(p policy) {
	var conns connections
	g := *f
	g.policy = policy{name: p.name, options: func() []grpc.DialOption { return append(p.options(), grpc.WithStatsHandler(&conns)) }}
	g.conn, g.client = g.dial()
	g.conn.Connect()
	pass(65 * time.Second)
	assert.Equal(f.t, connectivity.Ready, g.conn.GetState(), "%s, %s", f.kind, p.name)
	assert.EqualValues(f.t, 2, conns.begun.Load(), "connections of %s under %s", f.kind, p.name)
	assert.EqualValues(f.t, 0, conns.ended.Load(), "connections of %s under %s", f.kind, p.name)
	if p.name == modelAware.name {
		for _, server := range []string{"a", "b"} {
			assert.Contains(f.t, g.endpoint(server).Health.Sources, "oip", "%s is not asked for its health", server)
		}
	}
	var calls rig.Results
	for _, m := range modelsOfAll() {
		calls = append(calls, g.call(g.client, m))
	}
	assert.Empty(f.t, calls.Failed(), calls.String())
	g.row("65 s without calls", calls)
}

// connections counts a channel's connections.
type connections struct {
	stats.Handler

	begun, ended atomic.Int64
}

// TagRPC implements stats.Handler.
func (*connections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (*connections) HandleRPC(context.Context, stats.RPCStats) {}

// TagConn implements stats.Handler.
func (*connections) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (c *connections) HandleConn(_ context.Context, s stats.ConnStats) {
	switch s.(type) {
	case *stats.ConnBegin:
		c.begun.Add(1)
	case *stats.ConnEnd:
		c.ended.Add(1)
	}
}

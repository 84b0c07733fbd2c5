package peers

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	gbalancer "google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	estats "google.golang.org/grpc/experimental/stats"
	gresolver "google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"
)

// patience is how long anything here may take before the test or benchmark fails.
const patience = 30 * time.Second

// channel is what a policy sees of a gRPC channel. As in gRPC, one goroutine runs everything that reaches the policy from
// above and from its connections, which here succeed at once.
type channel struct {
	gbalancer.ClientConn

	server func(addr string) grpc.ClientConnInterface // what answers to producers

	state atomic.Pointer[gbalancer.State] // the last one published

	mu     sync.Mutex
	moved  *sync.Cond // something below, or a connection's state, changed
	queue  []func()
	closed bool
	pushes int // pickers published
	ready  int // connections that are READY, and have been told that they are healthy

	done chan struct{} // closed when the goroutine has ended
}

func newChannel(server func(addr string) grpc.ClientConnInterface) *channel {
	c := &channel{server: server, done: make(chan struct{})}
	c.moved = sync.NewCond(&c.mu)
	go c.serve()
	return c
}

func (c *channel) serve() {
	defer close(c.done)
	for {
		c.mu.Lock()
		for len(c.queue) == 0 && !c.closed {
			c.moved.Wait()
		}
		if c.closed {
			c.mu.Unlock()
			return
		}
		next := c.queue[0]
		c.queue = c.queue[1:]
		c.mu.Unlock()
		next()
	}
}

// schedule has f run after all that was scheduled before.
func (c *channel) schedule(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = append(c.queue, f)
	c.moved.Broadcast()
}

// run has f run in turn, and waits for it.
func (c *channel) run(f func()) {
	done := make(chan struct{})
	c.schedule(func() { f(); close(done) })
	<-done
}

// close ends the goroutine; what is still scheduled is dropped, as after the Close of a real channel.
func (c *channel) close() {
	c.mu.Lock()
	c.closed = true
	c.moved.Broadcast()
	c.mu.Unlock()
	<-c.done
}

// await waits until cond, which is called with c.mu held, is true.
func (c *channel) await(tb testing.TB, what string, cond func() bool) {
	tb.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if cond() {
		return
	}
	late := false
	timer := time.AfterFunc(patience, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		late = true
		c.moved.Broadcast()
	})
	defer timer.Stop()
	for !cond() {
		if late {
			require.FailNow(tb, "the policy is stuck", "no %s within %v: %d pickers published, %d connections ready",
				what, patience, c.pushes, c.ready)
		}
		c.moved.Wait()
	}
}

// pushed returns the number of pickers published so far.
func (c *channel) pushed() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pushes
}

// UpdateState implements balancer.ClientConn.
func (c *channel) UpdateState(s gbalancer.State) {
	c.state.Store(&s)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pushes++
	c.moved.Broadcast()
}

// NewSubConn implements balancer.ClientConn.
func (c *channel) NewSubConn(addrs []gresolver.Address, opts gbalancer.NewSubConnOptions) (gbalancer.SubConn, error) {
	if len(addrs) != 1 {
		return nil, fmt.Errorf("a connection to %d addresses, want 1", len(addrs))
	}
	return &subConn{channel: c, addr: addrs[0].Addr, listener: opts.StateListener}, nil
}

// ResolveNow implements balancer.ClientConn.
func (c *channel) ResolveNow(gresolver.ResolveNowOptions) {}

// Target implements balancer.ClientConn.
func (c *channel) Target() string { return "peers:///fleet" }

// MetricsRecorder implements balancer.ClientConn: nothing is configured to read metrics, as by default.
func (c *channel) MetricsRecorder() estats.MetricsRecorder {
	return estats.UnimplementedMetricsRecorder{}
}

// subConn is a connection that becomes READY as soon as it is asked to connect. Its fields belong to the channel's goroutine.
type subConn struct {
	gbalancer.SubConn

	channel  *channel
	addr     string
	listener func(gbalancer.SubConnState)
	state    connectivity.State // IDLE at first
	health   func(gbalancer.SubConnState)
	healthy  bool     // counted in channel.ready
	lost     []func() // end what producers do with the connection
}

// Connect implements balancer.SubConn.
func (sc *subConn) Connect() {
	sc.channel.schedule(func() {
		if sc.state != connectivity.Idle {
			return
		}
		sc.become(connectivity.Connecting)
		sc.channel.schedule(func() {
			if sc.state == connectivity.Connecting {
				sc.become(connectivity.Ready)
			}
		})
	})
}

// become moves the connection to a state; it runs on the channel's goroutine.
func (sc *subConn) become(s connectivity.State) {
	sc.state = s
	sc.health = nil
	if s == connectivity.Ready {
		sc.listener(gbalancer.SubConnState{ConnectivityState: s})
		return // counted as ready when its health is known
	}
	sc.count(false)
	for _, end := range sc.lost {
		end()
	}
	sc.lost = nil
	sc.listener(gbalancer.SubConnState{ConnectivityState: s})
}

func (sc *subConn) count(healthy bool) {
	sc.channel.mu.Lock()
	defer sc.channel.mu.Unlock()
	if healthy != sc.healthy {
		if healthy {
			sc.channel.ready++
		} else {
			sc.channel.ready--
		}
		sc.healthy = healthy
	}
	sc.channel.moved.Broadcast()
}

// RegisterHealthListener implements balancer.SubConn: the server is healthy.
func (sc *subConn) RegisterHealthListener(l func(gbalancer.SubConnState)) {
	sc.channel.schedule(func() {
		if sc.state != connectivity.Ready {
			return
		}
		sc.health = l
		l(gbalancer.SubConnState{ConnectivityState: connectivity.Ready})
		sc.count(true)
	})
}

// Shutdown implements balancer.SubConn.
func (sc *subConn) Shutdown() {
	sc.channel.schedule(func() {
		if sc.state != connectivity.Shutdown {
			sc.become(connectivity.Shutdown)
		}
	})
}

// UpdateAddresses implements balancer.SubConn.
func (sc *subConn) UpdateAddresses([]gresolver.Address) {}

// GetOrBuildProducer implements balancer.SubConn.
func (sc *subConn) GetOrBuildProducer(b gbalancer.ProducerBuilder) (gbalancer.Producer, func()) {
	p, end := b.Build(sc.channel.server(sc.addr))
	end = sync.OnceFunc(end)
	sc.lost = append(sc.lost, end)
	return p, end
}

// bareServer is a connection to a server that implements no method at all.
type bareServer struct{}

var errBareServer = status.Error(codes.Unimplemented, "unknown service")

// Invoke implements grpc.ClientConnInterface.
func (bareServer) Invoke(context.Context, string, any, any, ...grpc.CallOption) error {
	return errBareServer
}

// NewStream implements grpc.ClientConnInterface.
func (bareServer) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errBareServer
}

package rig

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	gbalancer "google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	estats "google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/metadata"
	gresolver "google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"

	"github.com/mlbalancer/mlbalancer/balancer"
)

// Channel is what a policy sees of a gRPC channel, without the network: connections succeed at once, and the policy's own picker
// can be asked millions of times. As in gRPC, what reaches the policy from above and from its connections comes one at a time: it
// happens within the methods of Channel, which are for one goroutine. Picker may be used by any number.
type Channel struct {
	gbalancer.ClientConn

	tb     testing.TB
	policy gbalancer.Balancer
	parser gbalancer.ConfigParser
	closed bool

	mu    sync.Mutex
	queue []func() // what the policy is yet to be told
	state gbalancer.State
	conns int // made so far
}

// NewChannel builds a policy, the one of a name.
func NewChannel(tb testing.TB, name string) *Channel {
	tb.Helper()
	b := gbalancer.Get(name)
	require.NotNil(tb, b, "policy %q", name)
	c := &Channel{tb: tb}
	c.parser, _ = b.(gbalancer.ConfigParser)
	c.policy = b.Build(c, gbalancer.BuildOptions{})
	tb.Cleanup(c.Close)
	return c
}

// ModelAware returns a channel whose policy has a config, the policy's section, and endpoints.
func ModelAware(tb testing.TB, config string, eps ...gresolver.Endpoint) *Channel {
	tb.Helper()
	c := NewChannel(tb, balancer.Name)
	c.Update(config, eps...)
	return c
}

// Update gives the policy a config and endpoints, and waits until it is done with them.
func (c *Channel) Update(config string, eps ...gresolver.Endpoint) {
	c.tb.Helper()
	var cfg serviceconfig.LoadBalancingConfig
	if c.parser != nil {
		var err error
		cfg, err = c.parser.ParseConfig([]byte(config))
		require.NoError(c.tb, err)
	}
	err := c.policy.UpdateClientConnState(gbalancer.ClientConnState{
		ResolverState:  gresolver.State{Endpoints: eps},
		BalancerConfig: cfg,
	})
	require.NoError(c.tb, err)
	c.settle()
}

// settle tells the policy what it is yet to be told, until there is nothing left.
func (c *Channel) settle() {
	for {
		c.mu.Lock()
		if len(c.queue) == 0 {
			c.mu.Unlock()
			return
		}
		next := c.queue[0]
		c.queue = c.queue[1:]
		c.mu.Unlock()
		next()
	}
}

func (c *Channel) schedule(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = append(c.queue, f)
}

// Conns returns how many connections the policy has made so far.
func (c *Channel) Conns() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conns
}

// Picker returns the picker that the policy published last.
func (c *Channel) Picker() gbalancer.Picker {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.Picker
}

// Pick asks the policy where a call of a method goes, and returns the address. The call never happens.
func (c *Channel) Pick(ctx context.Context, method string) string {
	return c.pick(c.Picker(), ctx, method)
}

func (c *Channel) pick(p gbalancer.Picker, ctx context.Context, method string) string {
	r, err := p.Pick(gbalancer.PickInfo{FullMethodName: method, Ctx: ctx})
	if err != nil {
		c.tb.Fatalf("pick: %v", err)
	}
	if r.Done != nil {
		r.Done(gbalancer.DoneInfo{})
	}
	return r.SubConn.(*subConn).addr
}

// Calls are the contexts of inference calls for some models, made once to be used for many picks.
type Calls []context.Context

// Models returns the calls for n models, m0, m1 and so on.
func Models(n int) Calls {
	calls := make(Calls, n)
	for i := range calls {
		calls[i] = ForModel(context.Background(), Model(i))
	}
	return calls
}

// Model returns the name of the i-th model.
func Model(i int) string { return fmt.Sprintf("m%d", i) }

// Map returns the address that each call goes to while nothing is in flight.
func (c *Channel) Map(calls Calls) []string {
	c.tb.Helper()
	p := c.Picker()
	to := make([]string, len(calls))
	for i, ctx := range calls {
		to[i] = c.pick(p, ctx, Infer)
	}
	return to
}

// Count returns how often each of a number of values occurs.
func Count(values []string) map[string]int {
	n := map[string]int{}
	for _, v := range values {
		n[v]++
	}
	return n
}

// UpdateState implements gbalancer.ClientConn.
func (c *Channel) UpdateState(s gbalancer.State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state = s
}

// NewSubConn implements gbalancer.ClientConn.
func (c *Channel) NewSubConn(addrs []gresolver.Address, opts gbalancer.NewSubConnOptions) (gbalancer.SubConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns++
	return &subConn{channel: c, addr: addrs[0].Addr, listener: opts.StateListener}, nil
}

// ResolveNow implements gbalancer.ClientConn.
func (c *Channel) ResolveNow(gresolver.ResolveNowOptions) {}

// MetricsRecorder implements gbalancer.ClientConn.
func (c *Channel) MetricsRecorder() estats.MetricsRecorder {
	return estats.UnimplementedMetricsRecorder{}
}

// subConn is a connection that succeeds. Its state belongs to whoever settles the channel.
type subConn struct {
	gbalancer.SubConn

	channel  *Channel
	addr     string
	listener func(gbalancer.SubConnState)
	state    connectivity.State
}

// Connect implements gbalancer.SubConn.
func (sc *subConn) Connect() {
	sc.channel.schedule(func() {
		if sc.state == connectivity.Idle {
			sc.become(connectivity.Connecting)
			sc.become(connectivity.Ready)
		}
	})
}

func (sc *subConn) become(s connectivity.State) {
	sc.state = s
	sc.listener(gbalancer.SubConnState{ConnectivityState: s})
}

// RegisterHealthListener implements gbalancer.SubConn: the server is healthy.
func (sc *subConn) RegisterHealthListener(l func(gbalancer.SubConnState)) {
	sc.channel.schedule(func() {
		if sc.state == connectivity.Ready {
			l(gbalancer.SubConnState{ConnectivityState: connectivity.Ready})
		}
	})
}

// Shutdown implements gbalancer.SubConn.
func (sc *subConn) Shutdown() {
	sc.channel.schedule(func() {
		if sc.state != connectivity.Shutdown {
			sc.become(connectivity.Shutdown)
		}
	})
}

// UpdateAddresses implements gbalancer.SubConn.
func (sc *subConn) UpdateAddresses([]gresolver.Address) {}

// GetOrBuildProducer implements gbalancer.SubConn: there is no connection that a server could be asked over.
func (sc *subConn) GetOrBuildProducer(gbalancer.ProducerBuilder) (gbalancer.Producer, func()) {
	return nil, func() {}
}

// PickTimes measures n times how long a number of picks take, one after the other over the calls.
func (c *Channel) PickTimes(calls Calls, n, picks int) []time.Duration {
	took := make([]time.Duration, n)
	for i := range took {
		start := time.Now()
		for range picks {
			c.pick(c.Picker(), calls[i%len(calls)], Infer)
		}
		took[i] = time.Since(start)
	}
	return took
}

// ForModel returns the context of a call for a model.
func ForModel(ctx context.Context, model string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, ModelHeader, model)
}

package balancer

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	gbalancer "google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	estats "google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"
)

// wires is a channel whose connections succeed when the test says so.
type wires struct {
	gbalancer.ClientConn
	conns []*wire
}

func (*wires) UpdateState(gbalancer.State)             {}
func (*wires) ResolveNow(resolver.ResolveNowOptions)   {}
func (*wires) Target() string                          { return "wires:///" }
func (*wires) MetricsRecorder() estats.MetricsRecorder { return estats.UnimplementedMetricsRecorder{} }

func (c *wires) NewSubConn(addrs []resolver.Address, opts gbalancer.NewSubConnOptions) (gbalancer.SubConn, error) {
	w := &wire{listen: opts.StateListener}
	c.conns = append(c.conns, w)
	return w, nil
}

// probed returns how often the policy has begun to ask each server about its health.
func (c *wires) probed() (counts []int) {
	for _, w := range c.conns {
		counts = append(counts, w.built)
	}
	return counts
}

// wire is a connection to a server without any service.
type wire struct {
	gbalancer.SubConn
	listen   func(gbalancer.SubConnState)
	health   func(gbalancer.SubConnState)
	built    int
	released int
	end      func()
}

func (*wire) Connect()                                                     {}
func (*wire) UpdateAddresses([]resolver.Address)                           {}
func (w *wire) RegisterHealthListener(listen func(gbalancer.SubConnState)) { w.health = listen }

// Shutdown ends what the producer does, as the loss of a connection does.
func (w *wire) Shutdown() {
	if w.end != nil {
		w.end()
	}
}

func (w *wire) GetOrBuildProducer(b gbalancer.ProducerBuilder) (gbalancer.Producer, func()) {
	w.built++
	var p gbalancer.Producer
	p, w.end = b.Build(noServices{})
	return p, func() { w.released++; w.end() }
}

// connected has the connection succeed.
func (w *wire) connected() {
	w.listen(gbalancer.SubConnState{ConnectivityState: connectivity.Connecting})
	w.listen(gbalancer.SubConnState{ConnectivityState: connectivity.Ready})
	w.health(gbalancer.SubConnState{ConnectivityState: connectivity.Ready})
}

type noServices struct{}

var errNoService = status.Error(codes.Unimplemented, "unknown service")

func (noServices) Invoke(context.Context, string, any, any, ...grpc.CallOption) error {
	return errNoService
}

func (noServices) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errNoService
}

// Servers are asked anew when it is the section health that has changed, and only then: each time costs a round of questions to
// all of them, and what they have said until then is forgotten.
func TestConfigsThatAskTheSameAreOneQuestion(t *testing.T) {
	t.Parallel()
	c := &wires{}
	b := builder{}.Build(c, gbalancer.BuildOptions{})
	defer b.Close()
	endpoints := []resolver.Endpoint{
		{Addresses: []resolver.Address{{Addr: "a:1"}}}, {Addresses: []resolver.Address{{Addr: "b:1"}}},
	}
	push := func(config string) {
		parsed, err := builder{}.ParseConfig([]byte(config))
		require.NoError(t, err)
		require.NoError(t, b.UpdateClientConnState(gbalancer.ClientConnState{
			ResolverState: resolver.State{Endpoints: endpoints}, BalancerConfig: parsed,
		}))
	}
	push(`{}`)
	require.Len(t, c.conns, 2)
	require.Equal(t, []int{0, 0}, c.probed(), "before they are connected")
	for _, w := range c.conns {
		w.connected()
	}
	require.Equal(t, []int{1, 1}, c.probed())

	spelt, err := DefaultConfig().MarshalJSON()
	require.NoError(t, err)
	for _, same := range []string{
		`{}`, `{"health":{}}`, `{"health":{"sources":null,"interval":"1s","weights":{"errors":0.4}}}`, string(spelt),
		`{"ring":{"replicas":3},"slowStart":{"window":"1s"},"breaker":{"openFor":"2s"}}`,
	} {
		push(same)
		require.Equal(t, []int{1, 1}, c.probed(), same)
	}
	for i, other := range []string{`{"health":{"interval":"2s"}}`, `{"health":{"interval":"2s","sources":["oip"]}}`, `{}`} {
		push(other)
		require.Equal(t, []int{2 + i, 2 + i}, c.probed(), other)
		push(other)
		require.Equal(t, []int{2 + i, 2 + i}, c.probed(), other)
	}
	push(`{"health":{"sources":[]}}`)
	require.Equal(t, []int{4, 4}, c.probed(), "nothing to ask")
	for _, w := range c.conns {
		require.Equal(t, w.built, w.released)
	}
}

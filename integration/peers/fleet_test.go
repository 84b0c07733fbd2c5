package peers

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	gbalancer "google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	gresolver "google.golang.org/grpc/resolver"

	"github.com/mlbalancer/mlbalancer/balancer"
	"github.com/mlbalancer/mlbalancer/picker"
)

const (
	method  = "/inference.GRPCInferenceService/ModelInfer"
	nModels = 1024
	// addressFormat is of addresses, which have three bytes.
	addressFormat = "10.%d.%d.%d:8001"
)

// modelName returns the name of a model, 24 bytes long.
func modelName(i int) string { return fmt.Sprintf("registry/llm-%07d-fp16", i) }

// withMetadata returns a context with the metadata of an ordinary call for the i-th model.
func withMetadata(i int) context.Context {
	return metadata.NewOutgoingContext(context.Background(), metadata.Pairs(
		modelHeader, modelName(i), "x-request-id", fmt.Sprintf("req-%020d", i), "authorization", "Bearer 0123456789abcdef"))
}

// calls returns the picks' inputs for all models.
func calls(ctx func(i int) context.Context) []gbalancer.PickInfo {
	infos := make([]gbalancer.PickInfo, nModels)
	for i := range infos {
		infos[i] = gbalancer.PickInfo{FullMethodName: method, Ctx: ctx(i)}
	}
	return infos
}

// answered is how a call ends that was sent and answered. A DoneInfo without either means that the call never happened.
var answered = gbalancer.DoneInfo{BytesSent: true, BytesReceived: true}

// fleet is a policy at work on a number of endpoints, all of them connected.
type fleet struct {
	tb        testing.TB
	policy    policy
	channel   *channel
	balancer  gbalancer.Balancer
	state     gbalancer.ClientConnState
	addresses int // handed out so far
	probes    int // models asked for to bring the fleet up

	// homes holds a call for each endpoint that reachAll has seen; under a sticky policy its model belongs there. It is the same for
	// each fleet of n endpoints.
	homes []gbalancer.PickInfo
}

// newFleet starts a policy on n endpoints and returns when each of them has been picked. It is closed when the test ends.
func newFleet(tb testing.TB, p policy, n int) *fleet {
	tb.Helper()
	f := connect(tb, p, n)
	tb.Cleanup(f.close)
	if p.told > 0 {
		f.awaitInformed()
		return f
	}
	f.reachAll()
	return f
}

// awaitInformed waits until the policy places calls by what servers have said.
func (f *fleet) awaitInformed() {
	f.awaitUsable()
	require.Eventually(f.tb, func() bool { return f.warm(nModels) > nModels*9/10 }, patience, 50*time.Millisecond, "calls for models where these are")
}

// warm places a number of calls and returns how many went to an endpoint since it holds their model. They end as if they had never happened.
func (f *fleet) warm(n int) (warm int) {
	for i := range n {
		ctx, call := picker.NewCall(withRequest(i), nil)
		call.Decision = &picker.Decision{}
		res, err := f.picker().Pick(gbalancer.PickInfo{FullMethodName: method, Ctx: ctx})
		if err != nil {
			continue
		}
		if call.Decision.Reason == picker.Warm {
			warm++
		}
		res.Done(gbalancer.DoneInfo{})
	}
	return warm
}

// connect starts a policy on n endpoints. Unless the policy is lazy, it returns when all of them are connected.
func connect(tb testing.TB, p policy, n int) *fleet {
	tb.Helper()
	f := &fleet{tb: tb, policy: p, channel: newChannel(servers(p, n))}
	builder, config := p.build(tb)
	f.state.BalancerConfig = config
	for range n {
		f.state.ResolverState.Endpoints = append(f.state.ResolverState.Endpoints, f.newEndpoint())
	}
	f.channel.run(func() { f.balancer = builder.Build(f.channel, gbalancer.BuildOptions{}) })
	f.update()
	if !p.lazy {
		f.awaitReady()
	}
	return f
}

// servers returns the servers of n endpoints by their addresses.
func servers(p policy, n int) func(addr string) grpc.ClientConnInterface {
	if p.told == 0 {
		return func(string) grpc.ClientConnInterface { return bareServer{} }
	}
	held := holdings(n, p.told)
	return func(addr string) grpc.ClientConnInterface {
		var a, b, c int
		fmt.Sscanf(addr, addressFormat, &a, &b, &c)
		i := (a<<16 + b<<8 + c) % n
		return newReporting(held[i], int64(i%4))
	}
}

// close ends the policy and the channel.
func (f *fleet) close() {
	f.channel.run(f.balancer.Close)
	f.channel.run(func() {}) // after the connections have been shut down
	f.channel.close()
}

func (f *fleet) newEndpoint() gresolver.Endpoint {
	f.addresses++
	addr := fmt.Sprintf(addressFormat, f.addresses>>16&255, f.addresses>>8&255, f.addresses&255)
	return gresolver.Endpoint{Addresses: []gresolver.Address{{Addr: addr}}}
}

// update hands the present endpoints to the policy.
func (f *fleet) update() {
	var err error
	f.channel.run(func() { err = f.balancer.UpdateClientConnState(f.state) })
	require.NoError(f.tb, err, f.policy.label)
}

// replace swaps one endpoint for a new one and returns when the policy has published a picker since.
func (f *fleet) replace(i int) {
	before := f.channel.pushed()
	f.state.ResolverState.Endpoints[i] = f.newEndpoint()
	f.update()
	f.channel.await(f.tb, "new picker", func() bool { return f.channel.pushes > before })
}

// awaitReady waits until all endpoints are connected and the policy has been told.
func (f *fleet) awaitReady() {
	n := len(f.state.ResolverState.Endpoints)
	f.channel.await(f.tb, "connection of all endpoints", func() bool { return f.channel.ready == n })
}

// awaitPlaces waits until none of the calls is put off any more. A policy that asks servers about their health puts off those
// whose home is connected but has not answered yet; others do not. Each call costs one pick, so that the wait can be part of what
// is timed.
func (f *fleet) awaitPlaces(calls ...gbalancer.PickInfo) {
	if !f.policy.asks {
		return
	}
	f.channel.await(f.tb, "place for each call", func() bool {
		for len(calls) > 0 {
			res, err := f.picker().Pick(calls[0])
			if err != nil {
				return false
			}
			res.Done(gbalancer.DoneInfo{})
			calls = calls[1:]
		}
		return true
	})
}

// awaitUsable waits until all endpoints are connected and, if the policy asks them about their health, have answered. It looks at
// all of them each time, and is not to be timed.
func (f *fleet) awaitUsable() {
	f.awaitReady()
	if !f.policy.asks {
		return
	}
	for {
		before := f.channel.pushed()
		state, err := balancer.Snapshot(context.Background(), asking{f.picker()}) // it waits for the policy, which may be waiting for the channel
		if err == nil && !slices.ContainsFunc(state.Endpoints, func(e balancer.EndpointState) bool { return e.Status != "ready" }) {
			return
		}
		f.channel.await(f.tb, "answer of all endpoints", func() bool { return f.channel.pushes > before })
	}
}

// asking is a channel as a read-out needs it: one whose calls get as far as the picker.
type asking struct{ picker gbalancer.Picker }

// Invoke implements grpc.ClientConnInterface.
func (a asking) Invoke(ctx context.Context, method string, _, _ any, _ ...grpc.CallOption) error {
	_, err := a.picker.Pick(gbalancer.PickInfo{FullMethodName: method, Ctx: ctx})
	return err
}

// NewStream implements grpc.ClientConnInterface.
func (asking) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errBareServer
}

// picker returns the picker that the policy published last.
func (f *fleet) picker() gbalancer.Picker { return f.channel.state.Load().Picker }

// reachAll asks for one model after another until every endpoint is connected and has been picked. The calls end as if they had
// never happened, so that they leave no trace in the policy.
func (f *fleet) reachAll() {
	n := len(f.state.ResolverState.Endpoints)
	f.homes = nil
	seen := make(map[gbalancer.SubConn]bool, n)
	for ; len(seen) < n; f.probes++ {
		// The smallest share that an endpoint has on a ring with few points is about a hundredth of the mean.
		require.Less(f.tb, f.probes, 2000*n, "%s: only %d of %d endpoints are ever picked", f.policy.label, len(seen), n)
		before := f.channel.pushed()
		info := gbalancer.PickInfo{FullMethodName: method, Ctx: withMetadata(nModels + f.probes)}
		res, err := f.picker().Pick(info)
		if err == gbalancer.ErrNoSubConnAvailable { // it is connecting, and a new picker follows
			f.channel.await(f.tb, "picker after a refusal", func() bool { return f.channel.pushes > before })
			continue
		}
		require.NoError(f.tb, err, f.policy.label)
		if res.Done != nil {
			res.Done(gbalancer.DoneInfo{})
		}
		if !seen[res.SubConn] {
			f.homes = append(f.homes, info)
		}
		seen[res.SubConn] = true
	}
	f.awaitReady()
	require.Equal(f.tb, connectivity.Ready, f.channel.state.Load().ConnectivityState, f.policy.label)
}

// flap has the connection that serves a model break down and come back; it returns when the policy has published a picker for each
// of the two, and places calls for the model again.
func (f *fleet) flap(sc *subConn, model gbalancer.PickInfo) {
	before := f.channel.pushed()
	f.channel.run(func() { sc.become(connectivity.Idle) })
	f.channel.await(f.tb, "picker after a lost connection", func() bool { return f.channel.pushes > before })
	if f.policy.lazy { // the connection is wanted again when a call for one of its models is
		_, err := f.picker().Pick(model)
		require.ErrorIs(f.tb, err, gbalancer.ErrNoSubConnAvailable)
	}
	f.awaitReady()
	f.awaitPlaces(model)
}

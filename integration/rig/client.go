package rig

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	gresolver "google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/serviceconfig"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/mlbalancer/mlbalancer/balancer"
)

// Methods that the policy knows, of a server that is known to all, and one of a server that is not.
const (
	Infer  = "/inference.GRPCInferenceService/ModelInfer"
	Load   = "/inference.GRPCInferenceService/RepositoryModelLoad"
	Stream = "/inference.GRPCInferenceService/ModelStreamInfer"
	Plain  = "/rig.Service/Call"
)

// ModelHeader is the metadata key that names a call's model.
const ModelHeader = "x-model-id"

// Setup says what a channel is made with.
type Setup struct {
	// Config is the policy's section of the service config, or a whole service config. Empty: {}.
	Config string
	// Endpoints are what the resolver says at first. Nil: all servers of the fleet. Empty but not nil: nothing at all, not
	// even that there are none.
	Endpoints []gresolver.Endpoint
	// Target replaces the resolver of the test's own; Endpoints are then without meaning.
	Target string
	// Options are added to those that a channel needs here.
	Options []grpc.DialOption
	// Idles says that the channel is to go idle when the test leaves it alone: nothing else looks at it then.
	Idles bool
}

// Client is a channel to a fleet, and the resolver behind it.
type Client struct {
	*grpc.ClientConn

	fleet    *Fleet
	resolver *manual.Resolver
	idles    bool
	calls    atomic.Int64 // under way
}

// Client makes a channel; it is closed with the test, if not before.
func (f *Fleet) Client(s Setup) *Client {
	f.tb.Helper()
	c, err := f.Dial(s)
	require.NoError(f.tb, err)
	return c
}

// Dial is Client for a channel that may be refused.
func (f *Fleet) Dial(s Setup) (*Client, error) {
	c := &Client{fleet: f, resolver: manual.NewBuilderWithScheme("rig"), idles: s.Idles}
	switch {
	case s.Endpoints == nil:
		c.resolver.InitialState(gresolver.State{Endpoints: f.Endpoints()})
	case len(s.Endpoints) > 0:
		c.resolver.InitialState(gresolver.State{Endpoints: s.Endpoints})
	}
	if s.Target == "" {
		s.Target = "rig:///fleet"
	}
	opts := append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(f.DialContext),
		grpc.WithResolvers(c.resolver),
		grpc.WithDefaultServiceConfig(ServiceConfig(s.Config)),
		grpc.WithReadBufferSize(4 << 10),
		grpc.WithWriteBufferSize(4 << 10),
	}, s.Options...)
	var err error
	if c.ClientConn, err = grpc.NewClient(s.Target, opts...); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.clients = append(slices.Clip(f.clients), c) // the watch may be going through the ones before
	return c, nil
}

// ServiceConfig returns a whole service config from one, or from the policy's section of it.
func ServiceConfig(config string) string {
	if config == "" {
		config = "{}"
	}
	if strings.Contains(config, "loadBalancing") {
		return config
	}
	return fmt.Sprintf(`{"loadBalancingConfig":[{%q:%s}]}`, balancer.Name, config)
}

// Resolve has the resolver say that these are the endpoints. It returns once the policy has heard it.
func (c *Client) Resolve(eps ...gresolver.Endpoint) {
	c.resolver.UpdateState(gresolver.State{Endpoints: eps})
}

// ResolveConfig has the resolver say what the endpoints are and what the service config is, which it may not do before the channel
// has left idleness.
func (c *Client) ResolveConfig(config string, eps ...gresolver.Endpoint) *serviceconfig.ParseResult {
	r := c.resolver.CC().ParseServiceConfig(ServiceConfig(config))
	c.resolver.UpdateState(gresolver.State{Endpoints: eps, ServiceConfig: r})
	return r
}

// ResolveError has the resolver report an error, which it may not do before the channel has left idleness.
func (c *Client) ResolveError(err error) { c.resolver.CC().ReportError(err) }

// Ready waits until the policy counts n endpoints as ready, and their servers too.
func (c *Client) Ready(n int) {
	c.fleet.tb.Helper()
	c.Connect()
	ready := 0
	Eventually(c.fleet.tb, func() bool {
		ready = 0
		s, _ := c.snapshot() // an error may be of the policy that was there before
		for _, e := range s.Endpoints {
			if e.Status == "ready" && e.Health.Server == "ready" {
				ready++
			}
		}
		return ready == n
	}, Patience, "%d endpoints ready", n)
}

// Informed waits until the policy counts n endpoints as ready whose servers say what they hold, and goes by that.
func (c *Client) Informed(n int) {
	c.fleet.tb.Helper()
	c.Ready(n)
	Eventually(c.fleet.tb, func() bool {
		informed := 0
		s, _ := c.snapshot()
		for _, e := range s.Endpoints {
			if e.Status == "ready" && e.Health.Sources["gpustats"] == "ready" {
				informed++
			}
		}
		return informed == n
	}, Patience, "%d endpoints say what they hold", n)
	_ = Wait(context.Background(), aware) // it has no deadline
}

// aware is in how long a policy that has heard what servers hold goes by it.
const aware = 200 * time.Millisecond

// Snapshot returns what the channel's policy knows.
func (c *Client) Snapshot() balancer.State {
	c.fleet.tb.Helper()
	s, err := c.snapshot()
	require.NoError(c.fleet.tb, err)
	return s
}

func (c *Client) snapshot() (balancer.State, error) {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	return balancer.Snapshot(ctx, c.ClientConn)
}

// Endpoint returns what the channel's policy knows of one endpoint.
func (c *Client) Endpoint(name string) balancer.EndpointState {
	c.fleet.tb.Helper()
	for _, e := range c.Snapshot().Endpoints {
		if e.Name == name {
			return e
		}
	}
	require.FailNow(c.fleet.tb, "no such endpoint", "%q", name)
	return balancer.EndpointState{}
}

// Call sends one inference call for a model (none if it is empty), and returns the name of the server that answered.
func (c *Client) Call(ctx context.Context, model string, opts ...grpc.CallOption) (string, error) {
	if model != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, ModelHeader, model)
	}
	return c.Method(ctx, Infer, opts...)
}

// Method sends one call of a method.
func (c *Client) Method(ctx context.Context, method string, opts ...grpc.CallOption) (string, error) {
	var reply wrapperspb.StringValue
	err := c.Invoke(ctx, method, &emptypb.Empty{}, &reply, opts...)
	return reply.Value, err
}

const (
	// lateness is how long after its deadline a call may end.
	lateness = 100 * time.Millisecond
	// hops is how many goroutines hand the end of a call on to the caller: each may find no processor.
	hops = 3
)

// Invoke implements grpc.ClientConnInterface. It has every call watched: see Fleet.
func (c *Client) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(Patience)
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	c.calls.Add(1)
	err := c.ClientConn.Invoke(ctx, method, args, reply, opts...)
	c.calls.Add(-1)
	if late := time.Since(deadline); late > lateness+hops*c.fleet.pauses.longest() {
		c.fleet.tb.Errorf("a call of %s ended %v after its deadline: %v", method, late, err)
	} else if !ok && late > 0 {
		c.fleet.tb.Errorf("a call of %s without a deadline hung: %v", method, err)
	}
	c.fleet.judge(status.Code(err), err)
	return err
}

// judge fails the test for a status that no server sent and that callers may not see otherwise.
func (f *Fleet) judge(c codes.Code, err error) {
	switch c {
	case codes.OK, codes.Unavailable, codes.ResourceExhausted, codes.DeadlineExceeded, codes.Canceled:
		return
	}
	if !f.sent[c].Load() {
		f.tb.Errorf("a caller saw a status that no server sent: %v", err)
	}
}

// Close closes the channel, and forgets it.
func (c *Client) Close() error {
	f := c.fleet
	f.mu.Lock()
	f.clients = slices.DeleteFunc(slices.Clone(f.clients), func(o *Client) bool { return o == c })
	f.mu.Unlock()
	return c.ClientConn.Close()
}

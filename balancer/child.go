package balancer

import (
	"time"

	gbalancer "google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/pickfirst"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/mlbalancer/mlbalancer/picker"
)

// connectPatience is how long an endpoint that connects anew counts as about to be ready, so that the calls it should serve wait for it
// instead of going where their model is not loaded. It covers a TLS handshake across a continent, and keeps the calls of a black-holed
// endpoint waiting but once.
const connectPatience = 500 * time.Millisecond

// child is the connection to one endpoint: a pick_first policy, watched. It stands between pick_first and endpointsharding, so
// it sees the raw state of each SubConn, and what pick_first makes of it (which includes the verdict of health listeners:
// client-side health checking, a parent's ejection).
type child struct {
	gbalancer.ClientConn // endpointsharding's
	leaf                 gbalancer.Balancer
	policy               *policy

	// Guarded by policy.mu.
	member  *member
	ready   gbalancer.SubConn  // the SubConn that is connected, if one is
	verdict connectivity.State // what pick_first reported last
	err     error              // why, if verdict is TransientFailure
	since   time.Time          // since when it has been connecting
}

// newChild is an endpointsharding.ChildBuilderFunc.
func (p *policy) newChild(cc gbalancer.ClientConn, opts gbalancer.BuildOptions) gbalancer.Balancer {
	c := &child{ClientConn: cc, policy: p, verdict: connectivity.Connecting, since: time.Now()}
	c.leaf = gbalancer.Get(pickfirst.Name).Build(c, opts)
	return c
}

// memberKey is the attribute that tells a child which member its endpoint is.
type memberKey struct{}

// UpdateClientConnState implements gbalancer.Balancer.
func (c *child) UpdateClientConnState(s gbalancer.ClientConnState) error {
	if m, ok := s.ResolverState.Endpoints[0].Attributes.Value(memberKey{}).(*member); ok {
		c.policy.mu.Lock()
		m.child, c.member = c, m
		c.policy.mu.Unlock()
	}
	return c.leaf.UpdateClientConnState(gbalancer.ClientConnState{
		ResolverState: pickfirst.EnableHealthListener(s.ResolverState),
	})
}

// ResolverError implements gbalancer.Balancer.
func (c *child) ResolverError(err error) { c.leaf.ResolverError(err) }

// UpdateSubConnState implements gbalancer.Balancer; gRPC no longer calls it.
func (c *child) UpdateSubConnState(gbalancer.SubConn, gbalancer.SubConnState) {}

// ExitIdle implements gbalancer.Balancer.
func (c *child) ExitIdle() { c.leaf.ExitIdle() }

// Close implements gbalancer.Balancer.
func (c *child) Close() { c.leaf.Close() }

// NewSubConn implements gbalancer.ClientConn for pick_first, and watches the SubConn.
func (c *child) NewSubConn(addrs []resolver.Address, opts gbalancer.NewSubConnOptions) (gbalancer.SubConn, error) {
	var sc gbalancer.SubConn
	listen := opts.StateListener
	opts.StateListener = func(s gbalancer.SubConnState) {
		c.connState(sc, s.ConnectivityState)
		listen(s)
	}
	var err error
	//lint:ignore SA1019 what is deprecated is more than one address, and that is up to pick_first
	sc, err = c.ClientConn.NewSubConn(addrs, opts) // it calls the listener only after Connect, hence after this assignment
	return sc, err
}

func (c *child) connState(sc gbalancer.SubConn, s connectivity.State) {
	p := c.policy
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case s == connectivity.Ready && c.ready == nil: // if two connect at the same moment, pick_first too keeps the first
		c.ready = sc
		if c.member != nil {
			c.member.endpoint.Reconnected(monotonic())
		}
	case s != connectivity.Ready && c.ready == sc:
		c.ready, c.since = nil, time.Now()
	default:
		return
	}
	p.publishLocked()
}

// UpdateState implements gbalancer.ClientConn for pick_first.
func (c *child) UpdateState(s gbalancer.State) {
	p := c.policy
	p.mu.Lock()
	c.verdict, c.err = s.ConnectivityState, nil
	if s.ConnectivityState == connectivity.TransientFailure {
		_, c.err = s.Picker.Pick(gbalancer.PickInfo{})
	}
	p.mu.Unlock()
	c.ClientConn.UpdateState(s) // comes back to policy.UpdateState
}

// status says what the table should know of the endpoint. Caller must hold policy.mu.
func (c *child) status(now time.Time) picker.Status {
	switch {
	case c.ready != nil && c.verdict == connectivity.Ready:
		return picker.Ready
	case c.verdict != connectivity.TransientFailure && now.Sub(c.since) < connectPatience:
		return picker.Pending
	}
	return picker.Down
}

package balancer

import (
	"time"

	gbalancer "google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/pickfirst"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/mlbalancer/mlbalancer/health"
	"github.com/mlbalancer/mlbalancer/health/monitor"
	"github.com/mlbalancer/mlbalancer/picker"
)

// connectPatience is how long an endpoint that connects anew counts as about to be ready, and once more how long one whose sources of health
// have not said their first word, so that the calls it should serve wait for it instead of going where their model is not loaded. It covers a TLS handshake across a continent, and keeps the calls of a black-holed
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
	judged  bool               // that was since the SubConn is connected, and is more than that it is
	err     error              // why, if verdict is TransientFailure
	failed  bool               // it could not be connected to since it was connected the last time
	since   time.Time          // since when it has been connecting, or its server has been asked about its health
	watch   *watch             // of the server's health, while it is connected
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
	switch {
	case s == connectivity.Ready && c.ready == nil && c.member != nil: // if two connect at the same moment, pick_first too keeps the first
		m, e, config := c.member, c.member.endpoint, p.config
		p.mu.Unlock()
		e.Reconnected(monotonic())
		p.guard.Unheard(e)
		watch := p.watchHealth(sc, m, config.Health)
		p.mu.Lock()
		c.ready, c.watch, c.judged, c.since = sc, watch, false, time.Now()
		if c.failed || c.member.newcomer {
			e.SlowStart(monotonic(), time.Duration(config.SlowStart.Window))
		}
		c.failed, c.member.newcomer = false, false
	case s != connectivity.Ready && c.ready == sc: // gRPC has ended the watch
		p.guard.Unheard(c.member.endpoint) // which may be gone for good, and is not to be kept for the models it held
		c.ready, c.watch, c.judged, c.since = nil, nil, false, time.Now()
	default:
		p.mu.Unlock()
		return
	}
	p.publishLocked()
	p.mu.Unlock()
}

// rewatch asks the server about its health by other rules. What a source has said stands until it speaks again, unless it is asked no longer. The
// caller must be one of gRPC's calls into the policy and must not hold policy.mu.
func (c *child) rewatch(h *HealthConfig) {
	p := c.policy
	p.mu.Lock()
	sc, old, m := c.ready, c.watch, c.member
	p.mu.Unlock()
	if sc == nil || old == nil {
		return
	}
	old.stop()
	for i, name := range monitor.Names() {
		if h.asks(name) {
			p.guard.Anew(m.endpoint, i)
		} else {
			p.guard.Withdraw(m.endpoint, i, monotonic())
		}
	}
	watch := p.watchHealth(sc, m, h)
	p.mu.Lock()
	defer p.mu.Unlock()
	c.watch = watch
}

// UpdateState implements gbalancer.ClientConn for pick_first.
func (c *child) UpdateState(s gbalancer.State) {
	p := c.policy
	p.mu.Lock()
	c.verdict, c.err = s.ConnectivityState, nil
	if s.ConnectivityState == connectivity.TransientFailure {
		_, c.err = s.Picker.Pick(gbalancer.PickInfo{})
		c.failed = c.failed || c.ready == nil
	}
	c.judged = c.ready != nil && (s.ConnectivityState == connectivity.Ready || s.ConnectivityState == connectivity.TransientFailure)
	if c.judged {
		p.guard.Verdict(c.member.endpoint, monotonic(), c.serverState())
	}
	p.mu.Unlock()
	c.ClientConn.UpdateState(s) // comes back to policy.UpdateState
}

// serverState is what the verdict says of the server. Caller must hold policy.mu.
func (c *child) serverState() health.ServerState {
	if c.verdict == connectivity.Ready {
		return health.ServerReady
	}
	return health.ServerNotReady
}

// status says what the table should know of the endpoint. One that is connected stays ready whatever is said of its health, which is for each pick to
// weigh; it is not yet while there is more to be heard of it, for a short time. Caller must hold policy.mu.
func (c *child) status(now time.Time) picker.Status {
	patient := now.Sub(c.since) < connectPatience
	switch {
	case c.ready != nil && c.judged && !(c.watch.hearing() && patient):
		return picker.Ready
	case patient && (c.ready != nil || c.verdict != connectivity.TransientFailure):
		return picker.Pending
	}
	return picker.Down
}

package balancer

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	gbalancer "google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/endpointsharding"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/grpclog"
	_ "google.golang.org/grpc/health" // switches client-side health checking on, where a service config asks for it
	"google.golang.org/grpc/serviceconfig"

	"github.com/mlbalancer/mlbalancer/breaker"
	"github.com/mlbalancer/mlbalancer/internal/outcome"
	"github.com/mlbalancer/mlbalancer/picker"
)

// Name is the name of the policy in service configs.
const Name = "model_aware"

var logger = grpclog.Component(Name)

func init() { gbalancer.Register(builder{}) }

type builder struct{}

// Name implements gbalancer.Builder.
func (builder) Name() string { return Name }

// ParseConfig implements gbalancer.ConfigParser.
func (builder) ParseConfig(js json.RawMessage) (serviceconfig.LoadBalancingConfig, error) {
	c, err := ParseConfig(js)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Build implements gbalancer.Builder.
func (builder) Build(cc gbalancer.ClientConn, opts gbalancer.BuildOptions) gbalancer.Balancer {
	p := &policy{ClientConn: cc, target: opts.Target.String(), rand: rand.Uint64, members: &membership{}, sidecars: newSidecars(opts)}
	if opts.ChannelzParent != nil {
		p.channel = opts.ChannelzParent
	}
	p.guard = picker.NewGuard(breaker.DefaultConfig(), p.rand)
	p.guarded = &guarded{p}
	p.configureLocked(DefaultConfig())
	p.buildTableLocked()
	p.mu.Lock() // since watch reads it
	p.watcher = watchEach(p)
	p.mu.Unlock()
	p.children = endpointsharding.NewBalancer(p, opts, p.newChild, endpointsharding.Options{})
	return p
}

// policy is one instance of the balancer. gRPC calls the methods of gbalancer.Balancer one at a time; children report from other
// goroutines as well.
type policy struct {
	gbalancer.ClientConn // the parent's; children reach it through this policy

	// Set when the policy is built, read only after that.
	children gbalancer.Balancer
	channel  any // identity of the channel, nil if unknown
	target   string
	rand     func() uint64
	guard    *picker.Guard
	guarded  *guarded
	sidecars sidecars

	refused  atomic.Bool // a call was refused since the last watch: picks set it
	current  atomic.Pointer[picker.Table]
	interest interest

	// mu guards what follows. It may be held while calling ClientConn.UpdateState, never while calling a child: children
	// report back from within calls.
	mu          sync.Mutex
	config      *Config
	reader      *requestReader
	outcomes    *outcome.Table
	members     *membership
	table       *picker.Table
	resolverErr error // why there is no usable update; nil after a good one
	updating    bool  // children are being updated: publish once they are done
	closed      bool
	patience    *time.Timer // runs out when the next Pending endpoint does
	watcher     *time.Timer // calls watch
	transitions []breaker.Event
	published   *snapshot
	state       connectivity.State
	pickers     uint64 // published so far
}

// UpdateClientConnState implements gbalancer.Balancer.
func (p *policy) UpdateClientConnState(s gbalancer.ClientConnState) error {
	config, ok := s.BalancerConfig.(*Config)
	if !ok {
		if s.BalancerConfig != nil {
			return p.reject(fmt.Errorf("%s: config is a %T, want a %T", Name, s.BalancerConfig, config))
		}
		config = DefaultConfig()
	}
	members, endpoints, err := p.members.next(s.ResolverState.Endpoints, p.endpoint)
	if err != nil {
		return p.reject(err)
	}

	p.mu.Lock()
	rewatch := !p.config.Health.asksLike(config.Health)
	p.configureLocked(config)
	p.members, p.resolverErr = members, nil
	if len(endpoints) == 0 {
		p.resolverErr = errNoAddresses
	}
	p.buildTableLocked() // so that a read-out finds members and table alike
	p.updating = true
	p.mu.Unlock()

	s.ResolverState.Endpoints, s.BalancerConfig = endpoints, nil
	err = p.children.UpdateClientConnState(s)
	if rewatch {
		for _, m := range members.slots {
			if m != nil && m.child != nil {
				m.child.rewatch(config.Health)
			}
		}
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	p.updating = false
	p.enrollLocked()
	p.buildTableLocked()
	p.publishLocked()
	return err
}

var errNoAddresses = errors.New(Name + ": the resolver produced no addresses")

// configureLocked puts a config in force, unless it is the one that already is.
func (p *policy) configureLocked(c *Config) {
	if !reflect.DeepEqual(p.config, c) {
		p.config, p.reader = c, newRequestReader(&c.Request)
		p.outcomes, _ = outcome.New(c.Breaker.Codes) // checked when the config was parsed
		p.guardLocked()
	}
}

// endpoint returns the state of an identity that this policy has not got: parked by a predecessor, or new.
func (p *policy) endpoint(id, addrs string) *picker.Endpoint {
	if e := parked.take(p.channel, id, addrs); e != nil {
		return e
	}
	return picker.NewEndpoint(id)
}

// reject refuses an update as a whole: the last good one stays. The resolver is told to try again.
func (p *policy) reject(err error) error {
	logger.Warningf("update rejected: %v", err)
	p.failing(err)
	return gbalancer.ErrBadResolverState
}

// failing notes why no usable update came, and publishes that if there is none to go on with.
func (p *policy) failing(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.members.byID) == 0 {
		p.resolverErr = err
		p.publishLocked()
	}
}

// ResolverError implements gbalancer.Balancer.
func (p *policy) ResolverError(err error) {
	p.failing(fmt.Errorf("%s: name resolution failed: %w", Name, err))
	p.children.ResolverError(err)
}

// UpdateSubConnState implements gbalancer.Balancer; gRPC no longer calls it.
func (p *policy) UpdateSubConnState(gbalancer.SubConn, gbalancer.SubConnState) {}

// ExitIdle implements gbalancer.Balancer.
func (p *policy) ExitIdle() { p.children.ExitIdle() }

// Close implements gbalancer.Balancer. Calls may still end after it.
func (p *policy) Close() {
	p.mu.Lock()
	p.closed = true
	if p.patience != nil {
		p.patience.Stop()
	}
	p.watcher.Stop()
	members := p.members
	p.guard.Group.Set(monotonic(), nil)
	p.mu.Unlock()
	p.children.Close()
	parked.park(p.channel, members)
}

// UpdateState implements gbalancer.ClientConn for the children: one of them has changed.
func (p *policy) UpdateState(gbalancer.State) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.publishLocked()
}

func (p *policy) buildTableLocked() {
	plan := p.config.plan()
	plan.Guard = p.guard
	p.table = picker.NewTable(p.table, plan, p.members.members(), p.statusLocked(time.Now()), p.rand)
	p.current.Store(p.table)
}

func (p *policy) statusLocked(now time.Time) []picker.Status {
	status := make([]picker.Status, len(p.members.slots))
	for i, m := range p.members.slots {
		if m != nil && m.child != nil {
			status[i] = m.child.status(now)
		}
	}
	return status
}

// publishLocked hands gRPC a new picker if anything that a pick reads has changed: each one wakes every waiting call.
func (p *policy) publishLocked() {
	if p.closed || p.updating {
		return
	}
	if p.published == nil && len(p.members.byID) == 0 && p.resolverErr == nil {
		return // nothing is known yet: calls wait
	}
	now := time.Now()
	if status := p.statusLocked(now); !slices.Equal(status, p.table.Statuses()) {
		p.table = p.table.WithStatus(status)
		p.current.Store(p.table)
	}
	p.waitForPendingLocked(now)
	state, refusal := p.verdictLocked()
	s := &snapshot{table: p.table, conns: p.connsLocked(), reader: p.reader, outcomes: p.outcomes, refusal: refusal, policy: p}
	s.loads = p.config.Health.asks("orca")
	if state == p.state && s.equal(p.published) {
		return
	}
	p.pushLocked(state, s)
}

func (p *policy) pushLocked(state connectivity.State, s *snapshot) {
	p.state, p.published = state, s
	p.pickers++
	p.ClientConn.UpdateState(gbalancer.State{ConnectivityState: state, Picker: s})
}

func (p *policy) connsLocked() []gbalancer.SubConn {
	conns := make([]gbalancer.SubConn, len(p.members.slots))
	for _, i := range p.table.Ready() {
		conns[i] = p.members.slots[i].child.ready
	}
	return conns
}

// verdictLocked returns the channel's state, from raw connections where there are any, and what a call gets when nothing is ready.
func (p *policy) verdictLocked() (connectivity.State, error) {
	connected, connecting, idle, failing, err := p.members.counts()
	state := connectivity.TransientFailure
	switch {
	case connected > 0:
		state = connectivity.Ready
	case connecting > 0:
		state = connectivity.Connecting
	case idle > 0:
		state = connectivity.Idle
	}
	switch {
	case len(p.table.Ready()) > 0:
		return state, nil
	case connecting > 0 || idle > 0:
		return state, gbalancer.ErrNoSubConnAvailable
	case p.resolverErr != nil:
		return state, p.resolverErr
	}
	r := refusal{connected: connected, failing: failing}
	if err != nil {
		r.cause = "; last error: " + err.Error()
	}
	return state, r
}

// refusal is why a call cannot be placed. It is no gRPC status, so calls that wait for ready do wait.
type refusal struct {
	connected, failing int
	cause              string
}

// Error implements error.
func (r refusal) Error() string {
	if r.failing == 0 {
		return fmt.Sprintf("%s: none of %d connected endpoints may be used%s", Name, r.connected, r.cause)
	}
	return fmt.Sprintf("%s: no endpoint is usable: %d connected, %d not%s", Name, r.connected, r.failing, r.cause)
}

// waitForPendingLocked makes sure that a picker is published when the first endpoint's patience runs out; the next one's runs out later.
func (p *policy) waitForPendingLocked(now time.Time) {
	if p.patience != nil {
		return
	}
	left := connectPatience + 1
	for i, s := range p.table.Statuses() {
		if s == picker.Pending {
			left = min(left, connectPatience-now.Sub(p.members.slots[i].child.since))
		}
	}
	if left > connectPatience {
		return
	}
	p.patience = time.AfterFunc(max(left, 1), func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.patience = nil
		p.publishLocked()
	})
}

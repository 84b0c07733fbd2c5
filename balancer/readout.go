package balancer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer/breaker"
	"github.com/mlbalancer/mlbalancer/picker"
)

// State is what a channel's policy knows and has done, at one moment.
type State struct {
	// Target is the target that the channel was made for.
	Target string `json:"target"`
	// Connectivity is the channel's state: "READY", "CONNECTING", "IDLE" or "TRANSIENT_FAILURE".
	Connectivity string `json:"connectivity"`
	// Pickers counts the pickers that were published: one for each change that routing could see.
	Pickers uint64 `json:"pickers"`
	// Panic says that too few endpoints are usable, so that open breakers and drains are being ignored.
	Panic bool `json:"panic"`
	// OpenBreakers is how many endpoints' breakers are open or half-open, MaxOpen how many may be at once.
	OpenBreakers int `json:"open_breakers"`
	MaxOpen      int `json:"max_open_breakers"`
	// Transitions are the last changes of breakers, at most 128, oldest first.
	Transitions []Transition `json:"transitions"`
	// Endpoints are those of the resolver's last good update, by name.
	Endpoints []EndpointState `json:"endpoints"`
}

// EndpointState is what is known of one endpoint.
type EndpointState struct {
	// Name is the endpoint's identity: the name that the resolver gave it, or its addresses.
	Name string `json:"name"`
	// Addresses are the addresses it may be reached at.
	Addresses []string `json:"addresses"`
	// Weight is its capacity relative to an endpoint of weight 1; 0 gets no calls.
	Weight float64 `json:"weight"`
	// Status is "ready", "pending" (connecting, and worth waiting for) or "down".
	Status string `json:"status"`
	// RingShare is the part of all models, 0 to 1, whose home it is; 0 if inference does not go by a ring.
	RingShare float64 `json:"ring_share"`
	// Draining says that the endpoint said it is going away: it gets no new calls.
	Draining bool `json:"draining"`
	// Breaker is the endpoint's circuit breaker.
	Breaker BreakerState `json:"breaker"`
	// Health is what the endpoint's health is known to be.
	Health HealthState `json:"health"`
	// InFlight is the number of this channel's calls on it now.
	InFlight int `json:"in_flight"`
	// CostInFlight is their cost, in tokens.
	CostInFlight int64 `json:"cost_in_flight"`
	// Latency is the peak-EWMA latency as of the last call, 0 before the first.
	Latency time.Duration `json:"latency_ns"`
	// Picks counts the calls that were sent to it, by reason.
	Picks map[string]uint64 `json:"picks"`
	// Models are those that it has answered for, by name; the least recently used are forgotten beyond some hundreds.
	Models []ModelState `json:"models"`
}

// ModelState is what is known of a model on an endpoint.
type ModelState struct {
	Name string `json:"name"`
	// State is what the sources of health say of it: "ready", "loading", "absent" (not in memory), "unavailable" or "unknown".
	State string `json:"state"`
	// Service is the moving average of the latency of its successful calls.
	Service time.Duration `json:"service_ns"`
	// Breaker is the model's own breaker on the endpoint; nil while there is nothing against it.
	Breaker *BreakerState `json:"breaker,omitempty"`
}

// BreakerState is what a breaker does, and why.
type BreakerState struct {
	// State is "closed", "open" or "half-open".
	State string `json:"state"`
	// Reason is why it changed last, in words; empty if it never did.
	Reason string `json:"reason,omitempty"`
	// OpenLeft is how long it will refuse all calls; 0 if it does not.
	OpenLeft time.Duration `json:"open_left_ns,omitempty"`
	// Counts is what it has seen in its window; zero for that of a model.
	Counts breaker.Counts `json:"counts"`
}

// Transition is one change of a breaker.
type Transition struct {
	Time     time.Time     `json:"time"`
	Endpoint string        `json:"endpoint"`
	Model    string        `json:"model,omitempty"` // empty if it is the endpoint's
	From     string        `json:"from"`
	To       string        `json:"to"`
	Reason   string        `json:"reason"`
	OpenFor  time.Duration `json:"open_for_ns,omitempty"`
}

const inspectMethod = "/mlbalancer.Local/Snapshot"

// Snapshot returns what the policy of a channel knows now. It asks the policy in this process, through the channel's picker: no message leaves
// the process and no counter moves, but the channel's interceptors see a call of /mlbalancer.Local/Snapshot that fails. It waits for the
// policy's first picker until ctx is done. A channel that is idle has no policy: its State has no endpoints, and it stays idle. A channel whose policy
// is not model_aware is an error.
func Snapshot(ctx context.Context, cc grpc.ClientConnInterface) (State, error) {
	if s, ok := cc.(interface{ GetState() connectivity.State }); ok && s.GetState() == connectivity.Idle {
		return State{Connectivity: connectivity.Idle.String()}, nil
	}
	var state State
	asked := false
	ctx, call := picker.NewCall(ctx, nil)
	call.Inspect = func(v any) {
		if p, ok := v.(*policy); ok {
			state, asked = p.read(), true
		}
	}
	err := cc.Invoke(ctx, inspectMethod, nil, nil, grpc.PerRPCCredentials(staysHere{}))
	switch {
	case asked:
		return state, nil
	case errors.Is(err, errStaysHere) || status.Code(err) == codes.Unauthenticated:
		return State{}, fmt.Errorf("%s: the channel's load-balancing policy is another one", Name)
	}
	return State{}, fmt.Errorf("%s: no snapshot: %w", Name, err)
}

var errStaysHere = status.Error(codes.Unauthenticated, Name+": a read-out is not for the wire")

// staysHere makes sure that a read-out which another policy would send to a server is not sent: it fails when its headers are made.
type staysHere struct{}

var _ credentials.PerRPCCredentials = staysHere{}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (staysHere) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return nil, errStaysHere
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (staysHere) RequireTransportSecurity() bool { return false }

func (p *policy) read() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := monotonic()
	s := State{Target: p.target, Connectivity: p.state.String(), Pickers: p.pickers, Panic: p.guard.Panic()}
	s.OpenBreakers, s.MaxOpen = p.guard.Group.Open()
	for _, e := range p.transitions {
		s.Transitions = append(s.Transitions, Transition{
			Time: start.Add(time.Duration(e.At)), Endpoint: e.Endpoint, Model: e.Model,
			From: e.From.String(), To: e.To.String(), Reason: e.Reason.String(), OpenFor: e.OpenFor,
		})
	}
	shares, _ := p.table.InferenceStrategy().(interface{ Share(i int) float64 })
	for i, m := range p.members.slots {
		if m == nil {
			continue
		}
		e := readEndpoint(m, p.table.Status(i), now)
		if shares != nil {
			e.RingShare = shares.Share(i)
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	slices.SortFunc(s.Endpoints, func(a, b EndpointState) int { return cmp.Compare(a.Name, b.Name) })
	return s
}

func readPair(p *breaker.Pair, now int64) *BreakerState {
	if p == nil {
		return nil
	}
	s := &BreakerState{State: p.State().String(), OpenLeft: p.OpenLeft(now)}
	if last, ok := p.Last(); ok {
		s.Reason = last.Reason.String()
	}
	return s
}

func readEndpoint(m *member, st picker.Status, now int64) EndpointState {
	b := m.endpoint.Breaker()
	s := EndpointState{
		Name: m.endpoint.ID(), Weight: m.weight, Status: st.String(),
		InFlight: m.endpoint.InFlight(), CostInFlight: m.endpoint.CostInFlight(),
		Latency:  time.Duration(m.endpoint.Latency()),
		Picks:    map[string]uint64{},
		Draining: m.endpoint.Draining(now),
		Health:   readHealth(m.endpoint, now),
		Breaker:  BreakerState{State: b.State().String(), OpenLeft: b.OpenLeft(now), Counts: b.Counts()},
	}
	if last, ok := b.Last(); ok {
		s.Breaker.Reason = last.Reason.String()
	}
	for _, a := range m.resolved.Addresses {
		s.Addresses = append(s.Addresses, a.Addr)
	}
	for r := range picker.NumReasons {
		if n := m.endpoint.Picks(r); n > 0 {
			s.Picks[r.String()] = n
		}
	}
	for model := range m.endpoint.Models() {
		s.Models = append(s.Models, ModelState{Name: model.Name(), State: model.State().String(), Service: model.Service(), Breaker: readPair(model.Breaker(), now)})
	}
	slices.SortFunc(s.Models, func(a, b ModelState) int { return cmp.Compare(a.Name, b.Name) })
	return s
}

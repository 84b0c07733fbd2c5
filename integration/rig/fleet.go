package rig

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	gresolver "google.golang.org/grpc/resolver"

	"github.com/mlbalancer/mlbalancer/resolver"
)

// Patience is how long anything that must happen may take, where a test does not say otherwise.
const Patience = 30 * time.Second

// Fleet is a network of servers, and the channels to them.
type Fleet struct {
	// Backends are the servers, b0, b1 and so on if they have no names of their own.
	Backends []*Backend

	tb     testing.TB
	hosts  map[string]*Backend
	pauses *pauses
	open   atomic.Int64 // connections, seen from the clients' side
	sent   [17]atomic.Bool
	far    atomic.Int64 // the longest time that connecting takes, in nanoseconds

	mu      sync.Mutex
	clients []*Client
}

// New starts n servers. They and all channels to them end with the test.
func New(tb testing.TB, n int) *Fleet {
	names := make([]string, n)
	for i := range names {
		names[i] = Server(i)
	}
	return NewNamed(tb, names...)
}

// Server returns the name of the i-th server of a fleet that was given none.
func Server(i int) string { return fmt.Sprintf("b%d", i) }

// NewNamed is New for servers of other names.
func NewNamed(tb testing.TB, names ...string) *Fleet {
	label(tb)
	f := &Fleet{tb: tb, hosts: map[string]*Backend{}, pauses: &pauses{}}
	for _, name := range names {
		b := &Backend{Name: name, fleet: f}
		f.Backends = append(f.Backends, b)
		f.hosts[b.Name] = b
		b.Start()
	}
	done := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		f.watch(done)
	}()
	tb.Cleanup(func() {
		close(done)
		<-stopped
		f.close()
	})
	return f
}

// Endpoints returns an endpoint for each server, with its address and neither name nor weight.
func (f *Fleet) Endpoints() []gresolver.Endpoint {
	var eps []gresolver.Endpoint
	for _, b := range f.Backends {
		eps = append(eps, At(b.Addr()))
	}
	return eps
}

// At returns an endpoint with some addresses.
func At(addrs ...string) gresolver.Endpoint {
	ep := gresolver.Endpoint{}
	for _, a := range addrs {
		ep.Addresses = append(ep.Addresses, gresolver.Address{Addr: a})
	}
	return ep
}

// Named returns an endpoint with a name and some addresses.
func Named(name string, addrs ...string) gresolver.Endpoint {
	return resolver.WithName(At(addrs...), name)
}

// DialContext is the network. A server is found by the host part of the address, so it can have any number of addresses.
func (f *Fleet) DialContext(ctx context.Context, addr string) (net.Conn, error) {
	host, _, _ := strings.Cut(addr, ":")
	b := f.hosts[host]
	if b == nil {
		return nil, fmt.Errorf("dial %s: no such host", addr)
	}
	if far := f.far.Load(); far > 0 {
		if err := Wait(ctx, rand.N(time.Duration(far))); err != nil {
			return nil, err
		}
	}
	c, err := b.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", addr, err)
	}
	f.open.Add(1)
	b.open.Add(1)
	return &conn{Conn: c, remote: address(addr), onClose: func() {
		f.open.Add(-1)
		b.open.Add(-1)
	}}, nil
}

// Far makes each connection take a random time of up to d from now on, as between machines. Else it depends on the order in which
// goroutines run which one is there first.
func (f *Fleet) Far(d time.Duration) { f.far.Store(int64(d)) }

var errRefused = errors.New("connection refused")

// answered notes a status that a server sends, so that callers may see it.
func (f *Fleet) answered(c codes.Code) { f.sent[c].Store(true) }

// Pause returns the longest time so far in which the machine gave this process no processor: what any time that a test measures may
// be longer by.
func (f *Fleet) Pause() time.Duration { return f.pauses.longest() }

// Open returns how many connections are open, seen from the clients' side.
func (f *Fleet) Open() int { return int(f.open.Load()) }

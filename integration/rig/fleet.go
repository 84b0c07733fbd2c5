package rig

import (
	"context"
	"errors"
	"fmt"
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
	// Backends are the servers, b0, b1 and so on.
	Backends []*Backend

	tb     testing.TB
	hosts  map[string]*Backend
	pauses *pauses
	open   atomic.Int64 // connections, seen from the clients' side
	sent   [17]atomic.Bool

	mu      sync.Mutex
	clients []*Client
}

// New starts n servers. They and all channels to them end with the test.
func New(tb testing.TB, n int) *Fleet {
	tb.Helper()
	label(tb)
	f := &Fleet{tb: tb, hosts: map[string]*Backend{}, pauses: &pauses{}}
	for i := range n {
		b := &Backend{Name: fmt.Sprintf("b%d", i), fleet: f}
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

// dial is the network. A server is found by the host part of the address, so it can have any number of addresses.
func (f *Fleet) dial(ctx context.Context, addr string) (net.Conn, error) {
	host, _, _ := strings.Cut(addr, ":")
	b := f.hosts[host]
	if b == nil {
		return nil, fmt.Errorf("dial %s: no such host", addr)
	}
	c, err := b.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", addr, err)
	}
	f.open.Add(1)
	b.open.Add(1)
	return &conn{Conn: c, remote: address(addr), closed: sync.OnceFunc(func() {
		f.open.Add(-1)
		b.open.Add(-1)
	})}, nil
}

var errRefused = errors.New("connection refused")

// conn is the client's end of a connection.
type conn struct {
	net.Conn
	remote address
	closed func()
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.closed()
	return c.Conn.Close()
}

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return c.remote }

type address string

// Network implements net.Addr.
func (address) Network() string { return "rig" }

// String implements net.Addr.
func (a address) String() string { return string(a) }

// answered notes a status that a server sends, so that callers may see it.
func (f *Fleet) answered(c codes.Code) { f.sent[c].Store(true) }

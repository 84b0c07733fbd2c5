package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Fleet is a set of servers that run until Close. It is safe for concurrent use.
type Fleet struct {
	// Servers are the fleet's servers, in order of their addresses in Addrs.
	Servers []*Server

	byAddr map[string]*Server
}

// Start starts a fleet. Nothing is resident anywhere.
func Start(cfg Config) (*Fleet, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	f := &Fleet{byAddr: make(map[string]*Server)}
	for i := range cfg.Servers {
		s := newServer(&cfg, i)
		if err := s.start(); err != nil {
			f.Close()
			return nil, err
		}
		f.Servers = append(f.Servers, s)
		f.byAddr[s.addr] = s
	}
	return f, nil
}

// Addrs returns the servers' addresses, host:port each. They stay the same until Close.
func (f *Fleet) Addrs() []string {
	addrs := make([]string, len(f.Servers))
	for i, s := range f.Servers {
		addrs[i] = s.Addr()
	}
	return addrs
}

// Dialer returns a function for grpc.WithContextDialer that reaches the servers by their addresses.
func (f *Fleet) Dialer() func(ctx context.Context, addr string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		s := f.byAddr[addr]
		if s == nil {
			return nil, fmt.Errorf("fleet: no server listens on %q", addr)
		}
		return s.Dial(ctx)
	}
}

// DialOptions returns what a channel to the fleet needs: Dialer, and plain-text credentials.
func (f *Fleet) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithContextDialer(f.Dialer()),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
	}
}

// Stats returns what each server has counted since the start or the last Reset, in order of Servers.
func (f *Fleet) Stats() []Stats {
	all := make([]Stats, len(f.Servers))
	for i, s := range f.Servers {
		all[i] = s.Stats()
	}
	return all
}

// Events returns what happened in the servers' memory since the start or the last Reset, in order of time.
func (f *Fleet) Events() []Event {
	var all []Event
	for _, s := range f.Servers {
		all = append(all, s.Events()...)
	}
	slices.SortStableFunc(all, func(a, b Event) int { return cmp.Or(a.Time.Compare(b.Time), a.Server-b.Server) })
	return all
}

// Reset makes the fleet as Start left it: every server up, memory empty, faults off, counters and events zero, random draws
// from their beginning. Calls in flight fail. Connections stay where the server was up. It fails if a server that was down cannot
// have its address back.
func (f *Fleet) Reset() error {
	var errs []error
	for _, s := range f.Servers {
		errs = append(errs, s.reset())
	}
	return errors.Join(errs...)
}

// Close stops all servers, cuts their connections and waits for everything that they started.
func (f *Fleet) Close() {
	var wg sync.WaitGroup
	for _, s := range f.Servers {
		wg.Go(s.close)
	}
	wg.Wait()
}

package fleet

import (
	"context"
	"net"

	"google.golang.org/grpc"
)

// Fleet is a set of servers that run until Close. It is safe for concurrent use.
type Fleet struct {
	// Servers are the fleet's servers, in order of their addresses in Addrs.
	Servers []*Server
}

// Start starts a fleet. Nothing is resident anywhere.
func Start(cfg Config) (*Fleet, error) { panic("not yet") }

// Addrs returns the servers' addresses, host:port each. They stay the same until Close.
func (f *Fleet) Addrs() []string { panic("not yet") }

// Dialer returns a function for grpc.WithContextDialer that reaches the servers by their addresses.
func (f *Fleet) Dialer() func(ctx context.Context, addr string) (net.Conn, error) { panic("not yet") }

// DialOptions returns what a channel to the fleet needs: Dialer, and plain-text credentials.
func (f *Fleet) DialOptions() []grpc.DialOption { panic("not yet") }

// Stats returns what each server has counted since the start or the last Reset, in order of Servers.
func (f *Fleet) Stats() []Stats { panic("not yet") }

// Events returns what happened in the servers' memory since the start or the last Reset, in order of time.
func (f *Fleet) Events() []Event { panic("not yet") }

// Reset makes the fleet as Start left it: every server up, memory empty, faults off, counters and events zero, random draws
// from their beginning. Calls in flight fail. Connections stay where the server was up.
func (f *Fleet) Reset() error { panic("not yet") }

// Close stops all servers, cuts their connections and waits for everything that they started.
func (f *Fleet) Close() { panic("not yet") }

// Package monitortest helps to test sources of health reports: a real gRPC server in memory, and a record of what was reported.
// It works inside and outside of synctest's bubbles.
package monitortest

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/mlbalancer/mlbalancer/internal/memconn"
)

// Serve starts a server with the services that register adds (which may be nil) and returns a connection to it. Both end with the
// test.
func Serve(tb testing.TB, register func(*grpc.Server), opts ...grpc.ServerOption) grpc.ClientConnInterface {
	tb.Helper()
	lis := memconn.Listen(32 << 10)
	s := grpc.NewServer(opts...)
	if register != nil {
		register(s)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(lis) }()
	conn, err := grpc.NewClient("passthrough:///server", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := conn.Close(); err != nil {
			tb.Error(err)
		}
		s.Stop()
		if err := <-served; err != nil {
			tb.Error(err)
		}
	})
	return conn
}

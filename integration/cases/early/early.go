// Package early uses the policy while the program is still being initialised. It knows it by its import for side effects only.
package early

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	_ "github.com/mlbalancer/mlbalancer/balancer"
	"github.com/mlbalancer/mlbalancer/internal/memconn"
)

// Err is what came of a call that an init function made.
var Err error

func init() { Err = call() }

const method = "/early.Service/Call"

// call sends one call to a server of its own.
func call() error {
	l := memconn.Listen(32 << 10)
	s := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		if m, _ := grpc.MethodFromServerStream(stream); m != method {
			return status.Error(codes.Unimplemented, m)
		}
		return stream.SendMsg(&emptypb.Empty{})
	}))
	go func() { _ = s.Serve(l) }() // it returns when the server is stopped
	defer s.Stop()
	cc, err := grpc.NewClient("passthrough:///early",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"model_aware":{"ring":{"virtualNodes":10}}}]}`))
	if err != nil {
		return err
	}
	defer func() { _ = cc.Close() }() // a call that failed is error enough
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return cc.Invoke(ctx, method, &emptypb.Empty{}, &emptypb.Empty{})
}

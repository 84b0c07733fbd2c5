package balancer

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	gbalancer "google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// probers is the key of the producers that ask servers about their health: gRPC hands one out for each connection.
var probers = &proberBuilder{}

type proberBuilder struct{}

// Build implements gbalancer.ProducerBuilder.
func (*proberBuilder) Build(conn any) (gbalancer.Producer, func()) {
	p := &prober{conn: conn.(grpc.ClientConnInterface)}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p, p.close
}

// prober asks one server over one connection, until that is closed. gRPC closes it in the middle of what it does with the connection, and waits
// for its goroutines: they must call nothing that waits for that. It is the connection that sources ask over, and ends by itself once that has gone:
// of two Closes of a channel at the same moment the second may keep gRPC (v1.85) from closing the policy and all that it has built.
type prober struct {
	conn   grpc.ClientConnInterface
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

func (p *prober) close() {
	p.cancel()
	p.wg.Wait()
}

// Invoke implements grpc.ClientConnInterface.
func (p *prober) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return p.check(p.conn.Invoke(ctx, method, args, reply, opts...))
}

// NewStream implements grpc.ClientConnInterface.
func (p *prober) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := p.conn.NewStream(ctx, desc, method, opts...)
	return s, p.check(err)
}

// notConnected is how a SubConn that has no connection refuses calls, with UNAVAILABLE (grpc's balancer_wrapper.go).
const notConnected = "SubConn state is not Ready"

// check returns err, and ends the prober if the connection has gone. Another one has another prober.
func (p *prober) check(err error) error {
	if s, _ := status.FromError(err); s.Code() == codes.Unavailable && s.Message() == notConnected {
		p.cancel()
	}
	return err
}

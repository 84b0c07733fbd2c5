package balancer

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	gbalancer "google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// unconnected is a policy that makes a SubConn, never connects it, and hands its prober to a test.
type unconnected struct {
	gbalancer.ClientConn
	probers chan *prober
}

func (unconnected) Name() string { return "unconnected" }

func (u unconnected) Build(cc gbalancer.ClientConn, _ gbalancer.BuildOptions) gbalancer.Balancer {
	return unconnected{cc, u.probers}
}

func (u unconnected) UpdateClientConnState(s gbalancer.ClientConnState) error {
	//lint:ignore SA1019 what is deprecated is more than one address
	sc, err := u.NewSubConn(s.ResolverState.Addresses, gbalancer.NewSubConnOptions{StateListener: func(gbalancer.SubConnState) {}})
	if err == nil {
		p, _ := sc.GetOrBuildProducer(probers)
		u.probers <- p.(*prober)
	}
	return err
}

func (unconnected) ResolverError(error)                                          {}
func (unconnected) UpdateSubConnState(gbalancer.SubConn, gbalancer.SubConnState) {}
func (unconnected) ExitIdle()                                                    {}
func (unconnected) Close()                                                       {}

// A prober whose connection has gone ends, even if gRPC does not say so, and with it all that asks.
func TestAProberEndsWithItsConnection(t *testing.T) {
	u := unconnected{probers: make(chan *prober, 1)}
	gbalancer.Register(u)
	for name, ask := range map[string]func(p *prober) error{
		"Invoke": func(p *prober) error { return p.Invoke(t.Context(), "/a.B/C", &emptypb.Empty{}, &emptypb.Empty{}) },
		"NewStream": func(p *prober) error {
			_, err := p.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, "/a.B/C")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := manual.NewBuilderWithScheme("unconnected")
			r.InitialState(resolver.State{Addresses: []resolver.Address{{Addr: "a"}}})
			cc, err := grpc.NewClient("unconnected:///a", grpc.WithResolvers(r), grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"unconnected":{}}]}`))
			require.NoError(t, err)
			defer cc.Close()
			cc.Connect()
			p := <-u.probers
			require.NoError(t, p.ctx.Err())
			require.Equal(t, codes.Unavailable, status.Code(ask(p)))
			assert.ErrorIs(t, p.ctx.Err(), context.Canceled)
		})
	}
}

func TestAProberOutlivesFailures(t *testing.T) {
	p, end := probers.Build((*grpc.ClientConn)(nil))
	defer end()
	for _, err := range []error{nil, errors.New("x"), status.Error(codes.Unavailable, "queue full"), status.Error(codes.Internal, notConnected)} {
		assert.Equal(t, err, p.(*prober).check(err))
		assert.NoError(t, p.(*prober).ctx.Err())
	}
}

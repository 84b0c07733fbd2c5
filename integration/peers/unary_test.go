package peers

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	gresolver "google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/test/bufconn"

	"github.com/mlbalancer/mlbalancer/internal/oip"
)

// echo is a model server that answers at once. It signs with its name, as the version of the model.
type echo struct {
	oip.UnimplementedGRPCInferenceServiceServer
	name string
}

// ModelInfer implements oip.GRPCInferenceServiceServer.
func (e echo) ModelInfer(_ context.Context, req *oip.ModelInferRequest) (*oip.ModelInferResponse, error) {
	return &oip.ModelInferResponse{ModelName: req.ModelName, ModelVersion: e.name, Id: req.Id, RawOutputContents: req.RawInputContents}, nil
}

// inferRequest is a small request for the i-th model.
func inferRequest(i int) *oip.ModelInferRequest {
	return &oip.ModelInferRequest{
		ModelName:        modelName(i),
		Inputs:           []*oip.ModelInferRequest_InferInputTensor{{Name: "x", Datatype: "FP32", Shape: []int64{6}}},
		RawInputContents: [][]byte{make([]byte, 24)},
	}
}

// withoutModel returns a context with the metadata of a call that names its model in the message only.
func withoutModel(i int) context.Context {
	return metadata.NewOutgoingContext(context.Background(), metadata.Pairs(
		"x-request-id", fmt.Sprintf("req-%020d", i), "authorization", "Bearer 0123456789abcdef"))
}

// dialEchoes starts n servers in memory and returns a channel to them under a policy.
func dialEchoes(tb testing.TB, p policy, n int) *grpc.ClientConn {
	tb.Helper()
	listeners := map[string]*bufconn.Listener{}
	var state gresolver.State
	for i := range n {
		addr := fmt.Sprintf("echo-%d:8001", i)
		listener := bufconn.Listen(1 << 20)
		listeners[addr] = listener
		state.Endpoints = append(state.Endpoints, gresolver.Endpoint{Addresses: []gresolver.Address{{Addr: addr}}})
		server := grpc.NewServer()
		oip.RegisterGRPCInferenceServiceServer(server, echo{name: addr})
		served := make(chan error, 1)
		go func() { served <- server.Serve(listener) }()
		tb.Cleanup(func() {
			server.Stop()
			require.NoError(tb, <-served)
		})
	}
	resolver := manual.NewBuilderWithScheme("peers")
	resolver.InitialState(state)
	cc, err := grpc.NewClient("peers:///fleet", append(p.dialOptions(),
		grpc.WithResolvers(resolver),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return listeners[addr].DialContext(ctx) }),
	)...)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, cc.Close()) })
	return cc
}

// unary is a channel at work: every call goes to a server that is connected.
type unary struct {
	client   oip.GRPCInferenceServiceClient
	contexts []context.Context
	requests []*oip.ModelInferRequest
}

const nEchoes = 10

func newUnary(tb testing.TB, p policy) *unary {
	tb.Helper()
	u := &unary{client: oip.NewGRPCInferenceServiceClient(dialEchoes(tb, p, nEchoes))}
	for i := range nModels {
		ctx := withoutModel(i)
		if p.header {
			ctx = withMetadata(i)
		}
		u.contexts = append(u.contexts, ctx)
		u.requests = append(u.requests, inferRequest(i))
	}
	for i := range nModels { // connects whatever connects on demand
		u.call(tb, i)
	}
	return u
}

// call calls the i-th model and returns the name of the server that answered.
func (u *unary) call(tb testing.TB, i int) string {
	resp, err := u.client.ModelInfer(u.contexts[i%nModels], u.requests[i%nModels])
	if err != nil {
		tb.Fatal(err)
	}
	if resp.ModelName != u.requests[i%nModels].ModelName {
		tb.Fatalf("asked %s, %s answered", u.requests[i%nModels].ModelName, resp.ModelName)
	}
	return resp.ModelVersion
}

func TestUnaryCallsReachEveryServer(t *testing.T) {
	for _, p := range policies {
		t.Run(p.label, func(t *testing.T) {
			u := newUnary(t, p)
			require.Eventually(t, func() bool {
				servers := map[string]bool{}
				for i := range nModels {
					servers[u.call(t, i)] = true
				}
				return len(servers) == nEchoes
			}, patience, time.Millisecond)
			if p.sticky {
				for i := range 10 {
					require.Equal(t, u.call(t, i), u.call(t, i), "model %d moved", i)
				}
			}
		})
	}
}

// BenchmarkUnary measures whole calls over in-memory connections to ten servers in this process, one after the other.
func BenchmarkUnary(b *testing.B) {
	for _, p := range policies {
		b.Run(p.label, func(b *testing.B) {
			b.ReportAllocs()
			u := newUnary(b, p)
			i := 0
			for b.Loop() {
				u.call(b, i)
				i++
			}
		})
	}
}

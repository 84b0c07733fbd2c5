package oip

import (
	"context"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer/internal/memconn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeServer notes what it was asked, and answers with what was asked for; a model named "broken" fails.
type fakeServer struct {
	UnimplementedGRPCInferenceServiceServer
	asked []string
}

func (s *fakeServer) note(method, model string) error {
	s.asked = append(s.asked, method+" "+model)
	if model == "broken" {
		return status.Error(codes.NotFound, "no such model")
	}
	return nil
}

func (s *fakeServer) ServerReady(context.Context, *ServerReadyRequest) (*ServerReadyResponse, error) {
	return &ServerReadyResponse{Ready: true}, s.note("ServerReady", "")
}

func (s *fakeServer) ModelReady(_ context.Context, req *ModelReadyRequest) (*ModelReadyResponse, error) {
	return &ModelReadyResponse{Ready: true}, s.note("ModelReady", req.GetName())
}

func (s *fakeServer) ModelInfer(_ context.Context, req *ModelInferRequest) (*ModelInferResponse, error) {
	return &ModelInferResponse{ModelName: req.GetModelName()}, s.note("ModelInfer", req.GetModelName())
}

func (s *fakeServer) ModelStreamInfer(stream grpc.BidiStreamingServer[ModelInferRequest, ModelStreamInferResponse]) error {
	for {
		req, err := stream.Recv()
		if err != nil {
			return nil
		}
		resp := &ModelStreamInferResponse{InferResponse: &ModelInferResponse{ModelName: req.GetModelName()}}
		if err := stream.Send(resp); err != nil {
			return err
		}
	}
}

func (s *fakeServer) ModelStatistics(_ context.Context, req *ModelStatisticsRequest) (*ModelStatisticsResponse, error) {
	return &ModelStatisticsResponse{ModelStats: []*ModelStatistics{{Name: "m"}}}, s.note("ModelStatistics", req.GetName())
}

func (s *fakeServer) RepositoryIndex(_ context.Context, req *RepositoryIndexRequest) (*RepositoryIndexResponse, error) {
	resp := &RepositoryIndexResponse{Models: []*RepositoryIndexResponse_ModelIndex{{Name: "m", State: "READY"}}}
	if !req.GetReady() {
		resp.Models = append(resp.Models, &RepositoryIndexResponse_ModelIndex{Name: "n"})
	}
	return resp, s.note("RepositoryIndex", "")
}

func (s *fakeServer) RepositoryModelLoad(_ context.Context, req *RepositoryModelLoadRequest) (*RepositoryModelLoadResponse, error) {
	return &RepositoryModelLoadResponse{}, s.note("RepositoryModelLoad", req.GetModelName())
}

func (s *fakeServer) RepositoryModelUnload(
	_ context.Context, req *RepositoryModelUnloadRequest,
) (*RepositoryModelUnloadResponse, error) {
	return &RepositoryModelUnloadResponse{}, s.note("RepositoryModelUnload", req.GetModelName())
}

func TestClient(t *testing.T) {
	fake := &fakeServer{}
	lis := memconn.Listen(1 << 16)
	srv := grpc.NewServer()
	RegisterGRPCInferenceServiceServer(srv, fake)
	go srv.Serve(lis)
	defer srv.Stop()
	cc, err := grpc.NewClient("passthrough:///fake",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer cc.Close()
	c := NewClient(cc)
	ctx := t.Context()

	ready, err := c.ServerReady(ctx)
	require.NoError(t, err)
	assert.True(t, ready)
	ready, err = c.ModelReady(ctx, "m")
	require.NoError(t, err)
	assert.True(t, ready)
	resp, err := c.Infer(ctx, &ModelInferRequest{ModelName: "m"})
	require.NoError(t, err)
	assert.Equal(t, "m", resp.GetModelName())
	require.NoError(t, c.Load(ctx, "m"))
	require.NoError(t, c.Unload(ctx, "m"))
	stats, err := c.Statistics(ctx, "")
	require.NoError(t, err)
	require.Len(t, stats, 1)
	index, err := c.Index(ctx, false)
	require.NoError(t, err)
	assert.Len(t, index, 2)
	index, err = c.Index(ctx, true)
	require.NoError(t, err)
	assert.Len(t, index, 1)

	stream, err := c.StreamInfer(ctx)
	require.NoError(t, err)
	require.NoError(t, stream.Send(&ModelInferRequest{ModelName: "m"}))
	answer, err := stream.Recv()
	require.NoError(t, err)
	assert.Equal(t, "m", answer.GetInferResponse().GetModelName())
	require.NoError(t, stream.CloseSend())
	_, err = stream.Recv()
	require.Equal(t, io.EOF, err)

	assert.Equal(t, []string{
		"ServerReady ", "ModelReady m", "ModelInfer m", "RepositoryModelLoad m", "RepositoryModelUnload m",
		"ModelStatistics ", "RepositoryIndex ", "RepositoryIndex ",
	}, fake.asked)

	ready, err = c.ModelReady(ctx, "broken")
	assert.Equal(t, codes.NotFound, status.Code(err))
	assert.False(t, ready)
	_, err = c.Infer(ctx, &ModelInferRequest{ModelName: "broken"})
	assert.Equal(t, codes.NotFound, status.Code(err))
	assert.Equal(t, codes.NotFound, status.Code(c.Load(ctx, "broken")))
	assert.Equal(t, codes.NotFound, status.Code(c.Unload(ctx, "broken")))
	stats, err = c.Statistics(ctx, "broken")
	assert.Equal(t, codes.NotFound, status.Code(err))
	assert.Nil(t, stats)
}

package oip

import (
	"context"

	"google.golang.org/grpc"
)

// Client asks a server that speaks the Open Inference Protocol. It is safe for concurrent use. Errors are gRPC status errors.
type Client struct {
	service GRPCInferenceServiceClient
}

// NewClient returns a client over a connection, which stays the caller's to close.
func NewClient(cc grpc.ClientConnInterface) *Client {
	return &Client{service: NewGRPCInferenceServiceClient(cc)}
}

// Infer runs a model once.
func (c *Client) Infer(ctx context.Context, req *ModelInferRequest, opts ...grpc.CallOption) (*ModelInferResponse, error) {
	return c.service.ModelInfer(ctx, req, opts...)
}

// StreamInfer opens a stream of requests. Failures of a request come in its response's error message; the stream goes on.
func (c *Client) StreamInfer(
	ctx context.Context, opts ...grpc.CallOption,
) (grpc.BidiStreamingClient[ModelInferRequest, ModelStreamInferResponse], error) {
	return c.service.ModelStreamInfer(ctx, opts...)
}

// ServerReady reports whether the server takes inference requests.
func (c *Client) ServerReady(ctx context.Context, opts ...grpc.CallOption) (bool, error) {
	resp, err := c.service.ServerReady(ctx, &ServerReadyRequest{}, opts...)
	return resp.GetReady(), err
}

// ModelReady reports whether the server holds the model.
func (c *Client) ModelReady(ctx context.Context, model string, opts ...grpc.CallOption) (bool, error) {
	resp, err := c.service.ModelReady(ctx, &ModelReadyRequest{Name: model}, opts...)
	return resp.GetReady(), err
}

// Load loads a model, and returns when it is ready.
func (c *Client) Load(ctx context.Context, model string, opts ...grpc.CallOption) error {
	_, err := c.service.RepositoryModelLoad(ctx, &RepositoryModelLoadRequest{ModelName: model}, opts...)
	return err
}

// Unload asks the server to unload a model; requests that it has accepted are finished first.
func (c *Client) Unload(ctx context.Context, model string, opts ...grpc.CallOption) error {
	_, err := c.service.RepositoryModelUnload(ctx, &RepositoryModelUnloadRequest{ModelName: model}, opts...)
	return err
}

// Statistics returns the cumulative statistics of a model that is ready, or of all of them if model is empty.
func (c *Client) Statistics(ctx context.Context, model string, opts ...grpc.CallOption) ([]*ModelStatistics, error) {
	resp, err := c.service.ModelStatistics(ctx, &ModelStatisticsRequest{Name: model}, opts...)
	return resp.GetModelStats(), err
}

// Index returns the models in the server's repository and their states, or only those that are ready.
func (c *Client) Index(ctx context.Context, ready bool, opts ...grpc.CallOption) ([]*RepositoryIndexResponse_ModelIndex, error) {
	resp, err := c.service.RepositoryIndex(ctx, &RepositoryIndexRequest{Ready: ready}, opts...)
	return resp.GetModels(), err
}

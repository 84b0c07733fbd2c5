package oip

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// maxResponse bounds how much of a server's answer is received, in bytes.
const maxResponse = 16 << 20

// The methods that are called.
const (
	methodServerReady = "/inference.GRPCInferenceService/ServerReady"
	methodModelReady  = "/inference.GRPCInferenceService/ModelReady"
	methodStatistics  = "/inference.GRPCInferenceService/ModelStatistics"
	methodIndex       = "/inference.GRPCInferenceService/RepositoryIndex"
	methodModelIndex  = "/inference.model_repository.ModelRepositoryService/RepositoryIndex"
)

// request is ServerReadyRequest, ModelReadyRequest{name = 1, version = 2}, ModelStatisticsRequest or RepositoryIndexRequest.
// The empty one asks for everything.
type request struct{ name, version string }

// response reads an encoded message, which is valid only while it does.
type response interface{ read(msg []byte) error }

// call is one call's messages as the codec sees them.
type call struct {
	request  request
	response response
	err      error // of reading the response
}

// invoke makes a call. Its error is the call's status, or says what is wrong with the response.
func (s *session) invoke(ctx context.Context, method string, req request, resp response) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	s.call = call{request: req, response: resp}
	if err := s.conn.Invoke(ctx, method, &s.call, &s.call, callOptions...); err != nil {
		return err
	}
	if s.call.err != nil {
		return fmt.Errorf("oip: malformed response of %s: %w", method, s.call.err)
	}
	return nil
}

var callOptions = []grpc.CallOption{grpc.ForceCodecV2(codec{}), grpc.MaxCallRecvMsgSize(maxResponse)}

// codec encodes and decodes a *call.
type codec struct{}

// Name implements encoding.CodecV2: on the wire it is protobuf.
func (codec) Name() string { return "proto" }

// Marshal implements encoding.CodecV2.
func (codec) Marshal(v any) (mem.BufferSlice, error) {
	req := v.(*call).request
	if req == (request{}) {
		return nil, nil
	}
	pool := mem.DefaultBufferPool()
	const overhead = 2 * (1 + 10) // a tag and a length for each
	buf := pool.Get(len(req.name) + len(req.version) + overhead)
	b := appendText((*buf)[:0], 1, req.name)
	b = appendText(b, 2, req.version)
	*buf = b
	return mem.BufferSlice{mem.NewBuffer(buf, pool)}, nil
}

func appendText(b []byte, num protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), s)
}

// Unmarshal implements encoding.CodecV2.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	c := v.(*call)
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	c.err = c.response.read(buf.ReadOnlyData())
	return nil
}

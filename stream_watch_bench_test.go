package mlbalancer

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/mlbalancer/mlbalancer/internal/methods"
	"github.com/mlbalancer/mlbalancer/internal/oip"
	"github.com/mlbalancer/mlbalancer/picker"
)

// still is a stream whose responses are there already.
type still struct{ grpc.ClientStream }

func (still) RecvMsg(any) error { return nil }
func (still) SendMsg(any) error { return nil }

// faults takes every in-band error for the model's.
type faults struct{ start time.Time }

func (f faults) Now() int64                      { return int64(time.Since(f.start)) }
func (faults) InBand(text string) picker.Outcome { return picker.ModelFault }

// watched returns a stream of a method that was placed for model m, as the interceptor watches it.
func watched(tb testing.TB, method string) grpc.ClientStream {
	known, _ := methods.Lookup(method)
	_, call := picker.NewCall(context.Background(), nil)
	stream, err := watch(call, known, known.Streaming, &grpc.StreamDesc{ServerStreams: true}).around(still{}, nil)
	require.NoError(tb, err)
	if call.Responses != nil {
		plan := picker.Plan{Inference: picker.Defaults("p2c"), Update: picker.Defaults("p2c")}
		members := []picker.Member{{Endpoint: picker.NewEndpoint("e"), Weight: 1}}
		table := picker.NewTable(nil, plan, members, []picker.Status{picker.Ready}, rand.Uint64)
		clock := faults{time.Now().Add(-time.Hour)}
		q := picker.Query{Request: picker.Request{ModelID: "m"}, Key: picker.Key("m"), Now: clock.Now(), Stream: true}
		var a picker.Attempt
		require.Equal(tb, 0, table.Place(&q, 0, &a).Index)
		a.Report(call.Responses, clock)
	}
	require.NoError(tb, stream.SendMsg(nil))
	return stream
}

// received are messages as callers receive them.
func received(tb testing.TB) map[string]any {
	response := &oip.ModelInferResponse{ModelName: "m", ModelVersion: "1", Id: "7", RawOutputContents: [][]byte{make([]byte, 4<<10)}}
	wrapped := &oip.ModelStreamInferResponse{InferResponse: response}
	encoded, err := proto.Marshal(wrapped)
	require.NoError(tb, err)
	return map[string]any{"wrapped": wrapped, "response": response, "encoded": &encoded}
}

const (
	streamInfer = "/inference.GRPCInferenceService/ModelStreamInfer"
	generate    = "/fmaas.GenerationService/GenerateStream"
	other       = "/test.Plain/Bidi"
)

func TestWatchDoesNotAllocate(t *testing.T) {
	for _, method := range []string{streamInfer, generate} {
		stream := watched(t, method)
		for name, m := range received(t) {
			assert.Zero(t, testing.AllocsPerRun(100, func() { stream.RecvMsg(m) }), "%s, %s", method, name)
			assert.Zero(t, testing.AllocsPerRun(100, func() { stream.SendMsg(m) }), method)
		}
	}
}

func TestWatchLeavesOthersAlone(t *testing.T) {
	assert.Equal(t, still{}, watched(t, other))
	assert.Equal(t, still{}, watched(t, "/inference.GRPCInferenceService/RepositoryIndex"))
}

// BenchmarkWatch measures what the watch adds to RecvMsg.
func BenchmarkWatch(b *testing.B) {
	for name, m := range received(b) {
		stream := watched(b, streamInfer)
		b.Run("answers/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				stream.RecvMsg(m)
			}
		})
	}
	stream := watched(b, generate)
	b.Run("others", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			stream.RecvMsg(nil)
		}
	})
}

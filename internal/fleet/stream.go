package fleet

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer/internal/oip"
)

const (
	// streamDepth bounds the requests of one stream that are in work at a time.
	streamDepth = 64
	// streamErrorHeader asks for an error to end the stream with its code, instead of coming in a response.
	streamErrorHeader = "triton_grpc_error"
)

// answer is what came of one request on a stream.
type answer struct {
	resp *oip.ModelStreamInferResponse
	err  error
}

// ModelStreamInfer runs the requests of a stream side by side, and answers each with one response, in the order of the requests.
func (v *service) ModelStreamInfer(stream grpc.BidiStreamingServer[oip.ModelInferRequest, oip.ModelStreamInferResponse]) error {
	ctx, cancel := context.WithCancel(stream.Context())
	v.server.update(func() { v.server.open++ })
	defer v.closed(stream.Context())
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()

	md, _ := metadata.FromIncomingContext(ctx)
	endOnError := slices.Contains(md.Get(streamErrorHeader), "true")

	requests := make(chan *oip.ModelInferRequest)
	var ended error // why there are no more requests; set before requests is closed
	go func() {     // ends with the stream at the latest, because Recv does
		defer close(requests)
		for {
			var req *oip.ModelInferRequest
			if req, ended = stream.Recv(); ended != nil {
				return
			}
			select {
			case requests <- req:
			case <-ctx.Done():
				ended = ctx.Err()
				return
			}
		}
	}()

	in := requests
	var pending []chan answer // of the requests in work, in their order
	for in != nil || len(pending) > 0 {
		var first chan answer
		if len(pending) > 0 {
			first = pending[0]
		}
		accept := in
		if len(pending) == streamDepth {
			accept = nil
		}
		select {
		case req, ok := <-accept:
			if !ok {
				in = nil
				continue
			}
			slot := make(chan answer, 1)
			pending = append(pending, slot)
			work.Go(func() { slot <- v.streamed(ctx, req) })
		case a := <-first:
			pending = pending[1:]
			if a.err != nil && (endOnError || ctx.Err() != nil) {
				return a.err
			}
			if err := stream.Send(a.resp); err != nil {
				return err
			}
		}
	}
	if errors.Is(ended, io.EOF) {
		return nil
	}
	return ended
}

// closed notes the end of a stream. Its trailer tells of the server without it.
func (v *service) closed(ctx context.Context) {
	var report []byte
	v.server.update(func() {
		v.server.open--
		report = v.server.orca()
	})
	setTrailer(ctx, report)
}

func (v *service) streamed(ctx context.Context, req *oip.ModelInferRequest) answer {
	resp, err := v.server.infer(ctx, req, false)
	if err != nil {
		return answer{
			resp: &oip.ModelStreamInferResponse{
				ErrorMessage:  status.Convert(err).Message(),
				InferResponse: &oip.ModelInferResponse{Id: req.GetId()},
			},
			err: err,
		}
	}
	return answer{resp: &oip.ModelStreamInferResponse{InferResponse: resp}}
}

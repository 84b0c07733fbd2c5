package fleet

import (
	"context"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

func TestStreamAnswersInOrder(t *testing.T) {
	inBubble(t, exact(Config{Servers: 1}), func(t *testing.T, f *Fleet) {
		s, c := f.Servers[0], client(t, f, 0)
		s.Preload("m")
		stream, err := c.StreamInfer(t.Context())
		require.NoError(t, err)
		begin := time.Now()
		const n = 3 * streamDepth
		go func() {
			for i := range n { // the first of each four takes longest: they run side by side
				req := NewRequest("m", time.Duration(4-i%4)*time.Second)
				req.Id = fmt.Sprint(i)
				assert.NoError(t, stream.Send(req))
			}
			assert.NoError(t, stream.CloseSend())
		}()
		for i := range n {
			resp, err := stream.Recv()
			require.NoError(t, err)
			require.Empty(t, resp.GetErrorMessage())
			require.Equal(t, fmt.Sprint(i), resp.GetInferResponse().GetId())
		}
		_, err = stream.Recv()
		require.Equal(t, io.EOF, err)
		total := n / 4 * 10 * time.Second // of work, on four workers
		assert.InDelta(t, float64(total)/4, float64(time.Since(begin)), float64(4*time.Second))
		assert.EqualValues(t, n, s.Stats().OK)
		assert.Equal(t, total, s.Stats().Busy)
	})
}

func TestStreamReportsErrorsInBand(t *testing.T) {
	inBubble(t, exact(Config{Servers: 1, Models: []string{"m"}}), func(t *testing.T, f *Fleet) {
		c := client(t, f, 0)
		stream, err := c.StreamInfer(t.Context())
		require.NoError(t, err)
		for i, model := range []string{"m", "nope", "m"} {
			req := NewRequest(model, 0)
			req.Id = fmt.Sprint(i)
			require.NoError(t, stream.Send(req))
			resp, err := stream.Recv()
			require.NoError(t, err)
			assert.Equal(t, req.Id, resp.GetInferResponse().GetId())
			if model == "m" {
				assert.Empty(t, resp.GetErrorMessage())
				assert.Equal(t, "m", resp.GetInferResponse().GetModelName())
			} else {
				assert.Equal(t, "Request for unknown model: 'nope' is not found", resp.GetErrorMessage())
			}
		}
		require.NoError(t, stream.CloseSend())
		_, err = stream.Recv()
		assert.Equal(t, io.EOF, err, "the stream ends well")
		assert.EqualValues(t, 1, f.Servers[0].Stats().Errors[codes.NotFound])
	})
}

func TestStreamEndsOnErrorIfAskedTo(t *testing.T) {
	inBubble(t, exact(Config{Servers: 1, Models: []string{"m"}}), func(t *testing.T, f *Fleet) {
		s, c := f.Servers[0], client(t, f, 0)
		s.Preload("m")
		ctx := metadata.AppendToOutgoingContext(t.Context(), "triton_grpc_error", "true")
		stream, err := c.StreamInfer(ctx)
		require.NoError(t, err)
		begin := time.Now()
		require.NoError(t, stream.Send(NewRequest("m", time.Second)))
		require.NoError(t, stream.Send(NewRequest("nope", 0)))
		require.NoError(t, stream.Send(NewRequest("m", time.Hour)))
		resp, err := stream.Recv()
		require.NoError(t, err)
		assert.Empty(t, resp.GetErrorMessage())
		_, err = stream.Recv()
		requireStatus(t, err, codes.NotFound, "Request for unknown model: 'nope' is not found")
		synctest.Wait()
		assert.Equal(t, time.Second, time.Since(begin))
		assert.Zero(t, s.Stats().Running, "the rest of the stream is called off")
	})
}

func TestStreamThatIsCancelledLeavesNothingBehind(t *testing.T) {
	inBubble(t, exact(Config{Servers: 1, Workers: 1}), func(t *testing.T, f *Fleet) {
		s, c := f.Servers[0], client(t, f, 0)
		s.Preload("m")
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := c.StreamInfer(ctx)
		require.NoError(t, err)
		const n = 2 * streamDepth
		for range n {
			require.NoError(t, stream.Send(NewRequest("m", time.Hour)))
		}
		synctest.Wait()
		st := s.Stats()
		assert.Equal(t, streamDepth, st.Running+st.Queued)
		cancel()
		_, err = stream.Recv()
		assert.Equal(t, codes.Canceled, status.Code(err))
		synctest.Wait()
		st = s.Stats()
		assert.Zero(t, st.Running+st.Queued)
		assert.EqualValues(t, streamDepth, st.Errors[codes.Canceled])
	})
}

package mlbalancer_test

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer"
	"github.com/mlbalancer/mlbalancer/picker"
)

// The tests of when a stream is created run in a bubble, where synctest.Wait returns once every goroutine waits for
// another: "is still waiting" is then a fact and not a guess.

func TestStreamIsCreatedByFirstSend(t *testing.T) {
	for _, desc := range []*grpc.StreamDesc{bidi, serverStream, clientStream} {
		synctest.Test(t, func(t *testing.T) {
			s, c := serve(t, 1), &creations{}
			stream, err := s.watched(t, c).NewStream(deadline(t), desc, modelStreamInfer)
			require.NoError(t, err)
			synctest.Wait()
			assert.Equal(t, 0, c.count())
			require.NoError(t, stream.SendMsg(text("m")))
			assert.Equal(t, 1, c.count())
			require.NoError(t, stream.CloseSend())
			for err == nil {
				err = stream.RecvMsg(text(""))
				if desc == clientStream {
					break // which ends after one message
				}
			}
			assert.Equal(t, 1, c.count())
		})
	}
}

func TestStreamReceiverMayComeFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stream, err := serve(t, 1).client(t).NewStream(deadline(t), bidi, modelStreamInfer)
		require.NoError(t, err)
		got := receive(stream)
		synctest.Wait()
		require.Empty(t, got, "it waits")
		require.NoError(t, stream.SendMsg(text("m")))
		assert.Equal(t, received{"s0:m", nil}, <-got)
		require.NoError(t, stream.CloseSend())
		assert.Equal(t, io.EOF, (<-receive(stream)).err)
	})
}

func TestStreamHeaderWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stream, err := serve(t, 1).client(t).NewStream(deadline(t), bidi, modelStreamInfer)
		require.NoError(t, err)
		got := make(chan metadata.MD, 1)
		go func() {
			md, err := stream.Header()
			assert.NoError(t, err)
			got <- md
		}()
		synctest.Wait()
		require.Empty(t, got, "it waits")
		require.NoError(t, stream.SendMsg(text("m")))
		assert.Equal(t, []string{"s0"}, (<-got).Get("server"))
		require.NoError(t, stream.CloseSend())
		<-receive(stream)
		assert.Equal(t, io.EOF, (<-receive(stream)).err)
	})
}

func TestStreamCloseSendCreates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c, d := serve(t, 1), &creations{}, picker.Decision{}
		stream, err := s.watched(t, c).NewStream(deadline(t), bidi, modelStreamInfer, mlbalancer.WithDecision(&d))
		require.NoError(t, err)
		require.NoError(t, stream.CloseSend())
		assert.Equal(t, 1, c.count())
		assert.Equal(t, io.EOF, (<-receive(stream)).err)
		assert.Equal(t, "", d.Model)
		assert.Equal(t, "s0", d.Endpoint, "placed without a model")
		require.NoError(t, stream.CloseSend(), "again")
		assert.EqualValues(t, 1, s.streams.Load())
	})
}

// What the channel could not create: the sender learns that it is over, the receiver why.
func TestStreamCreationError(t *testing.T) {
	cause := status.Error(codes.ResourceExhausted, "no stream for you")
	for name, desc := range map[string]*grpc.StreamDesc{"bidi": bidi, "client stream": clientStream, "server stream": serverStream} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &creations{err: cause}
				stream, err := serve(t, 1).watched(t, c).NewStream(deadline(t), desc, modelStreamInfer)
				require.NoError(t, err)
				got := receive(stream)
				synctest.Wait()
				want := io.EOF
				if !desc.ClientStreams {
					want = nil // generated code returns any error of SendMsg as the call's
				}
				assert.Equal(t, want, stream.SendMsg(text("m")))
				assert.Equal(t, want, stream.SendMsg(text("m")), "again")
				assert.NoError(t, stream.CloseSend())
				assert.Equal(t, cause, (<-got).err, "the receiver that waited")
				assert.Equal(t, cause, (<-receive(stream)).err, "a receiver that comes after")
				_, err = stream.Header()
				assert.Equal(t, cause, err)
				assert.Nil(t, stream.Trailer())
				assert.NoError(t, stream.Context().Err())
				assert.Equal(t, 1, c.count(), "it is tried once")
			})
		})
	}
}

// gRPC's own errors, from a fleet that cannot be reached, and what its call options see of them.
func TestStreamCreationErrorOfGRPC(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, 0)
		cc := s.clientOf(t, "mlb-static:///nobody", mlbalancer.DialOptions()...)
		_, plain := cc.NewStream(deadline(t), bidi, plainBidi)
		require.Equal(t, codes.Unavailable, status.Code(plain))

		var f finishes
		stream, err := cc.NewStream(deadline(t), bidi, modelStreamInfer, f.option())
		require.NoError(t, err)
		assert.Empty(t, f.codes())
		assert.Equal(t, io.EOF, stream.SendMsg(text("m")))
		err = (<-receive(stream)).err
		assert.Equal(t, status.Convert(plain).Proto().String(), status.Convert(err).Proto().String(), "as without deferral")
		assert.Equal(t, []codes.Code{codes.Unavailable}, f.codes())
	})
}

func TestStreamContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		ctx := context.WithValue(deadline(t), key{}, "value")
		stream, err := serve(t, 1).client(t).NewStream(ctx, bidi, modelStreamInfer)
		require.NoError(t, err)
		assert.Equal(t, ctx, stream.Context(), "it does not wait")
		require.NoError(t, stream.SendMsg(text("m")))
		assert.Equal(t, "value", stream.Context().Value(key{}))
		p, ok := peer.FromContext(stream.Context())
		require.True(t, ok, "the stream's own")
		assert.Equal(t, "memconn", p.Addr.Network())
		require.NoError(t, stream.CloseSend())
		<-receive(stream)
		assert.Equal(t, io.EOF, (<-receive(stream)).err)
	})
}

func TestStreamTrailer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var opt metadata.MD
		stream, err := serve(t, 1).client(t).NewStream(deadline(t), bidi, modelStreamInfer, grpc.Trailer(&opt))
		require.NoError(t, err)
		assert.Nil(t, stream.Trailer(), "it does not wait")
		require.NoError(t, stream.CloseSend())
		assert.Equal(t, io.EOF, (<-receive(stream)).err)
		assert.Equal(t, []string{"s0"}, stream.Trailer().Get("done"))
		assert.Equal(t, []string{"s0"}, opt.Get("done"))
	})
}

// A ctx that ends first: who waits gets its error, and gRPC ends the call with all that goes with it.
func TestStreamContextEndsWhileWaiting(t *testing.T) {
	for _, end := range []codes.Code{codes.Canceled, codes.DeadlineExceeded} {
		for name, wait := range map[string]func(grpc.ClientStream) error{
			"RecvMsg": func(s grpc.ClientStream) error { return s.RecvMsg(text("")) },
			"Header":  func(s grpc.ClientStream) error { _, err := s.Header(); return err },
			"nobody":  nil,
		} {
			t.Run(fmt.Sprint(end, " ", name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, c, f := serve(t, 1), &creations{}, finishes{}
					cc := s.watched(t, c)
					ctx, cancel := context.WithTimeout(context.Background(), time.Second)
					defer cancel()
					stream, err := cc.NewStream(ctx, bidi, modelStreamInfer, f.option())
					require.NoError(t, err)
					got := make(chan error, 1)
					if wait != nil {
						go func() { got <- wait(stream) }()
					}
					synctest.Wait()
					require.Empty(t, got)
					if end == codes.Canceled {
						cancel()
					} else {
						<-ctx.Done()
					}
					synctest.Wait()
					if wait != nil {
						assert.Equal(t, end, status.Code(<-got))
					}
					assert.Equal(t, []codes.Code{end}, f.codes(), "OnFinish, once")
					assert.Equal(t, io.EOF, stream.SendMsg(text("late")))
					assert.NoError(t, stream.CloseSend())
					assert.Equal(t, end, status.Code((<-receive(stream)).err))
					assert.Equal(t, 1, c.count())
					assert.Zero(t, s.streams.Load(), "no server heard of it")
				})
			})
		}
	}
}

func TestStreamContextHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc := serve(t, 1).client(t)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		for _, method := range []string{modelStreamInfer, plainBidi} {
			var f finishes
			stream, err := cc.NewStream(ctx, bidi, method, f.option())
			assert.Nil(t, stream, method)
			assert.Equal(t, codes.Canceled, status.Code(err), method)
			assert.Equal(t, []codes.Code{codes.Canceled}, f.codes(), method)
		}
	})
}

func TestStreamChannelIsClosedWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f finishes
		cc := serve(t, 1).client(t)
		stream, err := cc.NewStream(context.Background(), bidi, modelStreamInfer, f.option())
		require.NoError(t, err)
		got := receive(stream)
		synctest.Wait()
		require.NoError(t, cc.Close())
		assert.Equal(t, codes.Canceled, status.Code((<-got).err))
		assert.Equal(t, io.EOF, stream.SendMsg(text("m")))
		assert.Equal(t, []codes.Code{codes.Canceled}, f.codes())
	})
}

func TestStreamWaitsWithoutGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc := serve(t, 1).client(t)
		require.NoError(t, cc.Invoke(deadline(t), modelInfer, text("m"), text("")), "connects")
		ctx, cancel := context.WithCancel(deadline(t))
		synctest.Wait()
		before := runtime.NumGoroutine()
		for range 20 {
			_, err := cc.NewStream(ctx, bidi, modelStreamInfer)
			require.NoError(t, err)
		}
		synctest.Wait()
		assert.LessOrEqual(t, runtime.NumGoroutine(), before, "those of earlier tests may be on their way out")
		cancel()
	})
}

// A ctx may outlive its streams by far, and must not keep them.
func TestStreamLeavesNothingInItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := &countedContext{Context: context.Background(), done: make(chan struct{})}
		stream, err := serve(t, 1).client(t).NewStream(ctx, bidi, modelStreamInfer)
		require.NoError(t, err)
		assert.EqualValues(t, 1, ctx.waiting.Load())
		require.NoError(t, stream.CloseSend())
		assert.Equal(t, io.EOF, (<-receive(stream)).err)
		synctest.Wait()
		assert.Zero(t, ctx.waiting.Load())
	})
}

func TestStreamOthersAreCreatedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := serve(t, 1), &creations{}
		cc := s.watched(t, c)
		ctx, cancel := context.WithCancel(deadline(t))
		for i, method := range []string{
			plainBidi, plainServer, "/grpc.health.v1.Health/Watch", "/vllm.grpc.engine.VllmEngine/Generate",
		} {
			_, err := cc.NewStream(ctx, bidi, method)
			require.NoError(t, err)
			assert.Equal(t, i+1, c.count(), method)
		}
		cancel()
	})
}

// A server may speak first: such a stream must not wait for the client.
func TestStreamWithKnownModelIsCreatedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := picker.NewContext(metadata.AppendToOutgoingContext(deadline(t), "greet", "yes"), picker.Request{ModelID: "m"})
		var d picker.Decision
		stream, err := serve(t, 1).client(t).NewStream(ctx, bidi, modelStreamInfer, mlbalancer.WithDecision(&d))
		require.NoError(t, err)
		assert.Equal(t, received{"s0:hello", nil}, <-receive(stream))
		assert.Equal(t, "m", d.Model)
		require.NoError(t, stream.CloseSend())
		assert.Equal(t, io.EOF, (<-receive(stream)).err)

		noModel := picker.NewContext(deadline(t), picker.Request{Tokens: 5})
		c := &creations{}
		stream, err = serve(t, 1).watched(t, c).NewStream(noModel, bidi, modelStreamInfer)
		require.NoError(t, err)
		assert.Equal(t, 0, c.count(), "a Request without a model leaves it to the message")
		require.NoError(t, stream.CloseSend())
		assert.Equal(t, io.EOF, (<-receive(stream)).err)
	})
}

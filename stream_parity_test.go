package mlbalancer_test

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A deferred stream and one that is not, side by side: what the application sees is the same.
func TestStreamBehavesAsUndeferred(t *testing.T) {
	scenarios := map[string]struct {
		desc *grpc.StreamDesc
		run  func(ctx context.Context, cancel func(), s grpc.ClientStream, note func(what string, v any))
	}{
		"echo": {bidi, func(_ context.Context, _ func(), s grpc.ClientStream, note func(string, any)) {
			for _, m := range []string{"m", "n"} {
				note("send", s.SendMsg(text(m)))
				note("recv", <-receive(s))
			}
			md, err := s.Header()
			note("header", fmt.Sprint(md.Get("server"), err))
			note("close", s.CloseSend())
			note("recv", <-receive(s))
			note("trailer", s.Trailer().Get("done"))
		}},
		"status of the server": {bidi, func(_ context.Context, _ func(), s grpc.ClientStream, note func(string, any)) {
			note("send", s.SendMsg(text("fail")))
			note("recv", <-receive(s))
			note("send", s.SendMsg(text("more")))
			note("recv", <-receive(s))
			note("trailer", s.Trailer().Get("done"))
		}},
		"send after close": {bidi, func(_ context.Context, _ func(), s grpc.ClientStream, note func(string, any)) {
			note("close", s.CloseSend())
			synctest.Wait() // the server has ended the call
			note("send", s.SendMsg(text("m")))
			note("recv", (<-receive(s)).err)
		}},
		"too large a message": {bidi, func(_ context.Context, _ func(), s grpc.ClientStream, note func(string, any)) {
			note("send", s.SendMsg(text(string(make([]byte, 2<<10)))))
			note("recv", (<-receive(s)).err)
		}},
		"no message at all": {bidi, func(_ context.Context, _ func(), s grpc.ClientStream, note func(string, any)) {
			note("send", s.SendMsg(struct{}{}))
			note("recv", (<-receive(s)).err)
		}},
		"cancelled on the way": {bidi, func(_ context.Context, cancel func(), s grpc.ClientStream, note func(string, any)) {
			note("send", s.SendMsg(text("hang")))
			got := receive(s)
			synctest.Wait()
			cancel()
			note("recv", <-got)
		}},
		"deadline on the way": {bidi, func(ctx context.Context, _ func(), s grpc.ClientStream, note func(string, any)) {
			note("send", s.SendMsg(text("hang")))
			note("recv", status.Code((<-receive(s)).err)) // the text depends on who is first to notice
		}},
		"server stream": {serverStream, func(_ context.Context, _ func(), s grpc.ClientStream, note func(string, any)) {
			note("send", s.SendMsg(text("m"))) // as generated code does
			note("close", s.CloseSend())
			note("recv", <-receive(s))
			note("recv", <-receive(s))
			note("trailer", s.Trailer().Get("done"))
		}},
		"server stream that fails": {serverStream, func(_ context.Context, _ func(), s grpc.ClientStream, note func(string, any)) {
			note("send", s.SendMsg(text("fail")))
			note("close", s.CloseSend())
			note("recv", <-receive(s))
		}},
		"client stream": {clientStream, func(_ context.Context, _ func(), s grpc.ClientStream, note func(string, any)) {
			note("send", s.SendMsg(text("m")))
			note("close", s.CloseSend())
			note("recv", <-receive(s))
		}},
	}
	for name, sc := range scenarios {
		t.Run(name, func(t *testing.T) {
			logs := map[string][]string{}
			for _, method := range []string{plainBidi, modelStreamInfer} {
				synctest.Test(t, func(t *testing.T) {
					var f finishes
					cc := serve(t, 1).client(t, grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(1<<10)))
					ctx, cancel := context.WithTimeout(context.Background(), patience)
					defer cancel()
					stream, err := cc.NewStream(ctx, sc.desc, method, f.option())
					require.NoError(t, err)
					sc.run(ctx, cancel, stream, func(what string, v any) {
						logs[method] = append(logs[method], fmt.Sprintf("%s: %v", what, v))
					})
					synctest.Wait()
					logs[method] = append(logs[method], fmt.Sprint("finish: ", f.codes()))
				})
			}
			assert.Equal(t, logs[plainBidi], logs[modelStreamInfer])
			assert.NotEmpty(t, logs[plainBidi])
		})
	}
}

// One goroutine sends and closes, one receives, one cancels, all at once.
func TestStreamConcurrently(t *testing.T) {
	s := serve(t, 2)
	cc := s.client(t)
	for i := range 200 {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		stream, err := cc.NewStream(ctx, bidi, modelStreamInfer)
		require.NoError(t, err)
		var wg sync.WaitGroup
		wg.Go(func() {
			for range 3 {
				if stream.SendMsg(text("m")) != nil {
					return
				}
			}
			stream.CloseSend()
		})
		wg.Go(func() {
			stream.Header()
			for err == nil {
				err = stream.RecvMsg(text(""))
			}
			stream.Trailer()
		})
		wg.Go(func() {
			stream.Context()
			if i%2 == 0 {
				cancel()
			}
		})
		wg.Wait()
		cancel()
		if err != io.EOF {
			assert.Equal(t, codes.Canceled, status.Code(err))
		}
	}
}

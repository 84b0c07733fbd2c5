package mlbalancer_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/mlbalancer/mlbalancer"
)

// patience bounds what should not take any time.
const patience = 10 * time.Second

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// creations is an interceptor inside ours: it notes the streams that are created, and fails them with err if that is set.
type creations struct {
	mu  sync.Mutex
	n   int
	err error
}

func (c *creations) intercept(
	ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, create grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	c.mu.Lock()
	c.n++
	err := c.err
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return create(ctx, desc, cc, method, opts...)
}

func (c *creations) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// watched opens a channel whose streams c sees.
func (s *servers) watched(t testing.TB, c *creations, opts ...mlbalancer.Option) *grpc.ClientConn {
	return s.clientOf(t, s.target, append(mlbalancer.DialOptions(opts...), grpc.WithChainStreamInterceptor(c.intercept))...)
}

// finishes notes the calls of grpc.OnFinish.
type finishes struct {
	mu   sync.Mutex
	errs []error
}

func (f *finishes) option() grpc.CallOption {
	return grpc.OnFinish(func(err error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.errs = append(f.errs, err)
	})
}

func (f *finishes) codes() []codes.Code {
	f.mu.Lock()
	defer f.mu.Unlock()
	var cs []codes.Code
	for _, err := range f.errs {
		cs = append(cs, status.Code(err))
	}
	return cs
}

// receive starts to receive one message in a goroutine.
func receive(stream grpc.ClientStream) <-chan received {
	ch := make(chan received, 1)
	go func() {
		reply := &wrapperspb.StringValue{}
		err := stream.RecvMsg(reply)
		ch <- received{reply.Value, err}
	}()
	return ch
}

type received struct {
	text string
	err  error
}

func (r received) String() string { return fmt.Sprintf("%q, %v", r.text, r.err) }

// countedContext never ends, and counts who waits for its end.
type countedContext struct {
	context.Context
	done    chan struct{}
	waiting atomic.Int64
}

func (c *countedContext) Done() <-chan struct{} { return c.done }

// AfterFunc is what package context uses, where there is one, in place of a goroutine.
func (c *countedContext) AfterFunc(func()) (stop func() bool) {
	c.waiting.Add(1)
	return sync.OnceValue(func() bool { c.waiting.Add(-1); return true })
}

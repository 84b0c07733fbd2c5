package cases

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	gresolver "google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/mlbalancer/mlbalancer"
	"github.com/mlbalancer/mlbalancer/balancer"
	"github.com/mlbalancer/mlbalancer/integration/rig"
	"github.com/mlbalancer/mlbalancer/internal/memconn"
	"github.com/mlbalancer/mlbalancer/internal/oip"
	"github.com/mlbalancer/mlbalancer/picker"
)

// watching are the interceptors of streams.
var watching = []grpc.DialOption{grpc.WithChainStreamInterceptor(mlbalancer.StreamClientInterceptor())}

// bidi is how streams of inference are.
var bidi = &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}

// open opens a stream for a model; it ends with ctx at the latest.
func open(ctx context.Context, c *rig.Client, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return c.NewStream(metadata.AppendToOutgoingContext(ctx, rig.ModelHeader, "m"), bidi, rig.Stream, opts...)
}

// exchange sends a message, and returns the name of the server that answered.
func exchange(s grpc.ClientStream) (string, error) {
	if err := s.SendMsg(&emptypb.Empty{}); err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	var reply wrapperspb.StringValue
	err := s.RecvMsg(&reply)
	return reply.Value, err
}

// finish ends a stream in good order.
func finish(s grpc.ClientStream) error {
	if err := s.CloseSend(); err != nil {
		return err
	}
	if err := s.RecvMsg(&wrapperspb.StringValue{}); !errors.Is(err, io.EOF) {
		return fmt.Errorf("the end is %w", err)
	}
	return nil
}

// after returns a handler that ends each stream with an error once it has answered n messages.
func after(n int, err error) rig.Handler {
	var mu sync.Mutex
	answered := map[context.Context]int{}
	return func(ctx context.Context, _ string) error {
		mu.Lock()
		defer mu.Unlock()
		if answered[ctx]++; answered[ctx] > n {
			delete(answered, ctx)
			return err
		}
		return nil
	}
}

// talk opens a stream and exchanges messages until it fails, at most n.
func talk(ctx context.Context, c *rig.Client, n int, opts ...grpc.CallOption) (server string, err error) {
	s, err := open(ctx, c, opts...)
	if err != nil {
		return "", err
	}
	for range n {
		name, err := exchange(s)
		if err != nil {
			return server, err
		}
		server = name
	}
	return server, finish(s)
}

// However a stream breaks, it leaves the in-flight count (sgl-project/sglang-omni#931).
func TestSTRM01(t *testing.T) { inBubble(t, testSTRM01) }

func testSTRM01(t *testing.T) {
	f := rig.New(t, 4)
	b1 := f.Backends[1]
	c := f.Client(rig.Setup{Options: watching, Config: `{"inference":{"strategy":"p2c"},"breaker":{"consecutiveFailures":0,"failureRatio":0,
		"sequential":false,"slowCall":{"ratio":0},"perModel":false}}`})
	for _, b := range f.Backends {
		b.Takes(time.Millisecond)
	}
	c.Ready(4)
	short := func(n int) rig.Results {
		rs := rig.Closed(8, n, func(int) rig.Result { return c.Send("m", limit) })
		require.Empty(t, rs.Failed(), "%v", rs)
		return rs
	}
	short(400)
	c.Resolve(rig.At(b1.Addr()))
	c.Ready(1)

	// many has streams talk to B1 side by side, while something happens to it.
	many := func(n int, meanwhile func(), opts ...grpc.CallOption) map[codes.Code]int {
		var happening sync.WaitGroup
		if meanwhile != nil {
			happening.Go(meanwhile)
		}
		rs := rig.Closed(50, n, func(int) rig.Result {
			return rig.Timed(time.Second, func(ctx context.Context) (string, error) { return talk(ctx, c, 1000, opts...) })
		})
		happening.Wait()
		c.Ready(1)
		return rs.Codes()
	}
	slowly := func(ctx context.Context, _ string) error { return rig.Wait(ctx, 10*time.Millisecond) }

	b1.Handle(taking(time.Millisecond, after(3, status.Error(codes.DataLoss, "lost"))))
	assert.Equal(t, map[codes.Code]int{codes.DataLoss: 700}, many(700, nil), "handler errors")
	b1.Handle(taking(time.Millisecond, after(2, status.Error(codes.Internal, "recovered from a panic"))))
	assert.Equal(t, map[codes.Code]int{codes.Internal: 500}, many(500, nil), "panics")
	b1.Handle(slowly)
	assert.Equal(t, map[codes.Code]int{codes.ResourceExhausted: 300}, many(300, nil, grpc.MaxCallRecvMsgSize(1)), "oversized messages")
	b1.Handle(func(ctx context.Context, _ string) error { return rig.Wait(ctx, 30*time.Millisecond) })
	assert.Equal(t, map[codes.Code]int{codes.DeadlineExceeded: 400}, many(400, nil), "deadlines")
	b1.Handle(slowly)
	reset := many(100, func() {
		pause(t.Context(), 105*time.Millisecond)
		b1.Restart()
	})
	assert.GreaterOrEqual(t, reset[codes.Unavailable], 50, "resets: %v", reset)
	assert.Equal(t, map[codes.Code]int{codes.DeadlineExceeded: 50}, many(50, func() {
		pause(t.Context(), 105*time.Millisecond)
		b1.GracefulStop()
		b1.Start()
	}), "streams go on after a GOAWAY until their deadline")
	require.GreaterOrEqual(t, b1.Started(), 2000)

	rig.Eventually(t, func() bool { return c.Endpoint(b1.Addr()).InFlight == 0 }, time.Second, "no stream in flight")
	for _, b := range f.Backends {
		b.Takes(time.Millisecond)
	}
	c.Resolve(f.Endpoints()...)
	c.Ready(4)
	pause(t.Context(), 30*time.Second)
	by := short(4000).By()
	t.Logf("%v", by)
	assert.True(t, 600 <= by["b1"] && by["b1"] <= 1400, "b1: %d of 4000 calls", by["b1"])
}

// Opening a stream is no success, nor is any message of it: its end is what counts (ferro-labs/ai-gateway#136).
func TestSTRM02(t *testing.T) {
	t.Parallel()
	start := func(t *testing.T) (*rig.Fleet, *rig.Client) {
		f := rig.New(t, 2)
		c := f.Client(rig.Setup{Config: p2c, Options: watching})
		c.Ready(2)
		return f, c
	}
	for _, side := range []int{1, 10} {
		t.Run(fmt.Sprint("fails mid-way, streams side by side: ", side), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				f, c := start(t)
				f.Backends[1].Handle(after(2, status.Error(codes.Unavailable, "always")))
				rs := rig.Closed(side, 300, func(int) rig.Result {
					return rig.Timed(limit, func(ctx context.Context) (string, error) { return talk(ctx, c, 5) })
				})
				t.Logf("%v, %d streams on b1", rs.Codes(), f.Backends[1].Started())
				assert.GreaterOrEqual(t, len(rs.Failed()), 5)
				assert.LessOrEqual(t, len(rs.Failed()), 5+side-1)
				assert.Equal(t, "open", c.Endpoint("b1:1").Breaker.State)
				assert.Equal(t, "closed", c.Endpoint("b0:1").Breaker.State)
			})
		})
	}
	t.Run("good and long", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			const streams = 40
			f, c := start(t)
			for _, b := range f.Backends {
				b.Takes(100 * time.Millisecond)
			}
			load := make(chan rig.Results)
			go func() {
				load <- rig.Closed(streams, streams, func(int) rig.Result {
					return rig.Timed(limit, func(ctx context.Context) (string, error) { return talk(ctx, c, 30) })
				})
			}()
			pause(t.Context(), 2500*time.Millisecond)
			calls := func() (n, failures int) {
				for _, e := range c.Snapshot().Endpoints {
					n, failures = n+e.Breaker.Counts.Calls, failures+e.Breaker.Counts.Failures
					assert.Equal(t, "closed", e.Breaker.State)
				}
				return n, failures
			}
			n, _ := calls()
			assert.Zero(t, n, "votes while the streams are open")
			rs := <-load
			require.Empty(t, rs.Failed(), "%v", rs)
			n, failures := calls()
			assert.Equal(t, streams, n, "one vote each")
			assert.Zero(t, failures)

			rs = rig.Closed(streams, streams, func(i int) rig.Result {
				return rig.Timed(limit, func(ctx context.Context) (string, error) {
					ctx, cancel := context.WithCancel(ctx)
					defer time.AfterFunc(time.Duration(10+i)*35*time.Millisecond, cancel).Stop()
					return talk(ctx, c, 30)
				})
			})
			require.Equal(t, map[codes.Code]int{codes.Canceled: streams}, rs.Codes())
			n, failures = calls()
			assert.Equal(t, streams, n, "streams that callers cancelled have no vote")
			assert.Zero(t, failures)
		})
	})
}

// A stream is load for as long as it is open (grpc/grpc-dotnet#2389).
func TestSTRM04(t *testing.T) { inBubble(t, testSTRM04) }

func testSTRM04(t *testing.T) {
	const rounds = 12 // of which five would miss their mean once in sixty times
	total := 0
	f := rig.New(t, 3)
	for _, b := range f.Backends {
		b.Takes(5 * time.Millisecond)
	}
	for range rounds {
		c := f.Client(rig.Setup{Config: p2c, Options: watching})
		c.Ready(3)
		streams := map[string][]grpc.ClientStream{}
		openMore := func(n int) map[string]int {
			by := map[string]int{}
			for range n {
				s, err := open(t.Context(), c)
				require.NoError(t, err)
				name, err := exchange(s)
				require.NoError(t, err)
				streams[name] = append(streams[name], s)
				by[name]++
				pause(t.Context(), 45*time.Millisecond)
			}
			return by
		}
		by := openMore(90)
		for _, b := range f.Backends {
			assert.InDelta(t, 30, by[b.Name], 5, "%v", by)
			assert.Equal(t, by[b.Name], c.Endpoint(b.Addr()).InFlight)
		}
		for _, s := range streams["b1"] {
			require.NoError(t, finish(s))
		}
		delete(streams, "b1")
		more := openMore(30)
		t.Logf("%v, then %v", by, more)
		assert.GreaterOrEqual(t, more["b1"], 8, "%v", more)
		total += more["b1"]
		for _, open := range streams {
			for _, s := range open {
				require.NoError(t, finish(s))
			}
		}
		require.NoError(t, c.Close())
	}
	assert.GreaterOrEqual(t, float64(total)/rounds, 17., "mean of those that b1 gets of 30")
}

// A caller that gives up ends the work at the server (maximhq/bifrost#3164). Limiters and hedges join with those.
func TestSTRM06(t *testing.T) { inBubble(t, testSTRM06) }

func testSTRM06(t *testing.T) {
	const streams = 500
	f := rig.New(t, 2)
	var ended sync.Map // from the call's number to when its context ended at the server
	for _, b := range f.Backends {
		b.Handle(func(ctx context.Context, _ string) error {
			n := number(ctx)
			if _, again := ended.LoadOrStore(n, time.Time{}); n%3 > 0 && !again {
				return nil // mid-stream: the second message hangs
			}
			<-ctx.Done()
			ended.Store(n, time.Now())
			return status.FromContextError(ctx.Err()).Err()
		})
	}
	c := f.Client(rig.Setup{Config: p2c, Options: watching})
	c.Ready(2)
	var gaveUp [streams]time.Time
	rs := rig.Closed(50, streams, func(i int) rig.Result {
		return rig.Timed(time.Duration(100+i)*time.Millisecond, func(ctx context.Context) (string, error) {
			ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(ctx, callKey, strconv.Itoa(i)))
			defer cancel()
			gaveUp[i], _ = ctx.Deadline()
			if i%3 != 2 { // the others let the deadline pass
				gaveUp[i] = time.Now().Add(time.Duration(20+i%50) * time.Millisecond)
				defer time.AfterFunc(time.Until(gaveUp[i]), cancel).Stop()
			}
			return talk(ctx, c, 2)
		})
	})
	for _, r := range rs {
		want := codes.Canceled
		if r.Index%3 == 2 {
			want = codes.DeadlineExceeded
		}
		assert.Equal(t, want, status.Code(r.Err), "%v", r.Err)
	}
	rig.Eventually(t, func() bool { return f.Backends[0].Running()+f.Backends[1].Running() == 0 }, time.Second, "no stream at a server")
	late := 0
	for i, at := range gaveUp {
		v, _ := ended.Load(i)
		end, _ := v.(time.Time)
		require.False(t, end.IsZero(), "stream %d never ended at its server", i)
		if end.Sub(at) > 100*time.Millisecond {
			late++
		}
	}
	assert.LessOrEqual(t, late, streams/100)
	for _, e := range c.Snapshot().Endpoints {
		assert.Equal(t, "closed", e.Breaker.State)
		assert.Zero(t, e.Breaker.Counts.Failures)
		assert.Zero(t, e.InFlight)
	}

	before := f.Backends[0].Started() + f.Backends[1].Started()
	for range 50 { // a stream that waits for its first message has no place yet
		ctx, cancel := context.WithCancel(t.Context())
		s, err := c.NewStream(ctx, bidi, rig.Stream)
		require.NoError(t, err)
		cancel()
		require.Equal(t, codes.Canceled, status.Code(s.RecvMsg(&wrapperspb.StringValue{})))
	}
	assert.Equal(t, before, f.Backends[0].Started()+f.Backends[1].Started())
}

// rawCodec leaves messages as the bytes that they are.
type rawCodec struct{}

func (rawCodec) Name() string                  { return "proto" }
func (rawCodec) Marshal(m any) ([]byte, error) { return m.([]byte), nil }
func (rawCodec) Unmarshal(b []byte, m any) error {
	*m.(*[]byte) = append([]byte(nil), b...)
	return nil
}

// modelServer is a server that answers the n-th request of a stream, from 0, with a message. It has no other methods.
func modelServer(t *testing.T, answer func(n int) []byte) *memconn.Listener {
	lis := memconn.Listen(32 << 10)
	srv := grpc.NewServer(grpc.ForceServerCodec(rawCodec{}), grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		if method, _ := grpc.MethodFromServerStream(s); method != rig.Stream {
			return status.Error(codes.Unimplemented, method)
		}
		for n := 0; ; n++ {
			var request []byte
			if s.RecvMsg(&request) != nil {
				return nil
			}
			if err := s.SendMsg(answer(n)); err != nil {
				return err
			}
		}
	}))
	served := make(chan error, 1)
	go func() { served <- srv.Serve(lis) }()
	t.Cleanup(func() {
		srv.Stop()
		<-served
	})
	return lis
}

func encode(t *testing.T, m proto.Message) []byte {
	b, err := proto.Marshal(m)
	require.NoError(t, err)
	return b
}

// One method has two wire types: errors of the one are counted, and nothing of the other is taken for one (seen on MLServer).
func TestREAL06(t *testing.T) { inBubble(t, testREAL06) }

func testREAL06(t *testing.T) {
	const streams, messages = 50, 9
	response := &oip.ModelInferResponse{ModelName: "m", ModelVersion: "1", Id: "7", RawOutputContents: [][]byte{[]byte("tensor")}}
	bare := encode(t, response)
	good := encode(t, &oip.ModelStreamInferResponse{InferResponse: response})
	bad := encode(t, &oip.ModelStreamInferResponse{ErrorMessage: "boom", InferResponse: &oip.ModelInferResponse{Id: "7"}})
	triton := func(n int) []byte {
		if n%3 == 2 {
			return bad
		}
		return good
	}
	mlserver := func(int) []byte { return bare }
	answers := map[string]func(int) []byte{"triton:1": triton, "mlserver:1": mlserver}
	listeners := map[string]*memconn.Listener{}
	for name, answer := range answers {
		listeners[name] = modelServer(t, answer)
	}
	f := rig.New(t, 0)
	client := func(config string) *rig.Client {
		c := f.Client(rig.Setup{
			Config:    config,
			Endpoints: []gresolver.Endpoint{rig.At("triton:1"), rig.At("mlserver:1")},
			Options: append(watching[:len(watching):len(watching)], grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
				return listeners[addr].DialContext(ctx)
			})),
		})
		c.Ready(2)
		return c
	}
	request := encode(t, &oip.ModelInferRequest{ModelName: "m"})
	// stream has one stream run its course, and returns where.
	stream := func(c *rig.Client) string {
		var d picker.Decision
		s, err := c.NewStream(t.Context(), bidi, rig.Stream, grpc.ForceCodec(rawCodec{}), mlbalancer.WithDecision(&d))
		require.NoError(t, err)
		for n := range messages {
			var reply []byte
			require.NoError(t, s.SendMsg(request))
			require.NoError(t, s.RecvMsg(&reply))
			require.Equal(t, answers[d.Endpoint](n), reply)
		}
		require.NoError(t, s.CloseSend())
		require.ErrorIs(t, s.RecvMsg(&[]byte{}), io.EOF)
		return d.Endpoint
	}
	ofModel := func(c *rig.Client, name string) *balancer.BreakerState {
		e := c.Endpoint(name)
		assert.Zero(t, e.Breaker.Counts.Failures, "the endpoint itself is not at fault: %s", name)
		assert.Zero(t, e.InFlight)
		require.Len(t, e.Models, 1)
		assert.Equal(t, "m", e.Models[0].Name)
		return e.Models[0].Breaker
	}

	c := client(p2c)
	by := map[string]int{}
	for by["triton:1"] < streams || by["mlserver:1"] < streams {
		by[stream(c)]++
	}
	t.Logf("%v", by)
	for name, n := range by {
		assert.Equal(t, n, c.Endpoint(name).Breaker.Counts.Calls, "one vote each for the endpoint")
	}
	require.NotNil(t, ofModel(c, "triton:1"), "errors are counted")
	assert.Equal(t, "closed", ofModel(c, "triton:1").State, "a third is not enough")
	assert.Nil(t, ofModel(c, "mlserver:1"), "there is nothing against it")

	c = client(`{"inference":{"strategy":"p2c"},"breaker":{"failureRatio":0.3}}`)
	by = map[string]int{}
	for range 2 * streams {
		by[stream(c)]++
	}
	t.Logf("%v", by)
	require.NotNil(t, ofModel(c, "triton:1"))
	assert.Equal(t, "open", ofModel(c, "triton:1").State)
	assert.LessOrEqual(t, by["triton:1"], 3, "streams until a third is enough")
	assert.Nil(t, ofModel(c, "mlserver:1"))
	assert.GreaterOrEqual(t, by["mlserver:1"], streams)
}

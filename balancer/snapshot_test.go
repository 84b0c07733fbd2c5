package balancer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	gbalancer "google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/mlbalancer/mlbalancer/breaker"
	"github.com/mlbalancer/mlbalancer/internal/outcome"
	"github.com/mlbalancer/mlbalancer/picker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const inferMethod = "/inference.GRPCInferenceService/ModelInfer"

type fakeConn struct {
	gbalancer.SubConn
	i int
}

// readySnapshot returns a snapshot of n endpoints that are all ready, under a config.
func readySnapshot(tb testing.TB, n int, config string) *snapshot {
	c, err := ParseConfig([]byte(config))
	require.NoError(tb, err)
	outcomes, err := outcome.New(c.Breaker.Codes)
	require.NoError(tb, err)
	plan := c.plan()
	plan.Guard = picker.NewGuard(c.Breaker.Config, rand.Uint64)
	var breakers []*breaker.Breaker
	defer func() { plan.Guard.Group.Set(monotonic(), breakers) }()
	members, status, conns := make([]picker.Member, n), make([]picker.Status, n), make([]gbalancer.SubConn, n)
	for i := range n {
		members[i] = picker.Member{Endpoint: picker.NewEndpoint(fmt.Sprintf("10.0.%d.%d:8001", i/250, i%250)), Weight: 1}
		breakers = append(breakers, members[i].Breaker())
		status[i], conns[i] = picker.Ready, fakeConn{i: i}
	}
	return &snapshot{
		table: picker.NewTable(nil, plan, members, status, rand.Uint64), conns: conns,
		reader: newRequestReader(&c.Request), outcomes: outcomes, refusal: errors.New("nothing is ready"),
	}
}

var answered = gbalancer.DoneInfo{BytesSent: true, BytesReceived: true}

func TestPickAllocatesNothing(t *testing.T) {
	s := readySnapshot(t, 100, `{}`)
	background := context.Background()
	record, call := picker.NewCall(background, nil)
	call.Resolve(&picker.Request{ModelID: "m"}, picker.Key("m"))
	// A message whose field 1 is a string stands for a model server's request; it is read at the first pick.
	message := wrapperspb.String("resnet")
	for _, tc := range []struct {
		name   string
		method string
		ctx    func() context.Context
		want   float64
	}{
		{"request in ctx", inferMethod, constant(picker.NewContext(background, picker.Request{ModelID: "m"})), 0},
		{"record in ctx", inferMethod, constant(record), 0},
		{"record with a message, made for the call", inferMethod, func() context.Context {
			ctx, _ := picker.NewCall(background, message)
			return ctx
		}, 1},
		{"metadata", inferMethod, constant(metadata.AppendToOutgoingContext(background, "x-model-id", "m")), 1},
		{"no model", "/some.Service/Method", constant(background), 0},
		{"update", "/inference.GRPCInferenceService/RepositoryModelLoad", constant(background), 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			allocs := testing.AllocsPerRun(1000, func() {
				r, err := s.Pick(gbalancer.PickInfo{FullMethodName: tc.method, Ctx: tc.ctx()})
				if err != nil {
					t.Fatal(err)
				}
				r.Done(answered)
			})
			// The pool of attempts is emptied by the garbage collector now and then, and under the race detector at random.
			require.LessOrEqual(t, allocs, tc.want+poolNoise)
		})
	}
}

func constant(ctx context.Context) func() context.Context {
	return func() context.Context { return ctx }
}

func TestPickCountsInAndOut(t *testing.T) {
	s := readySnapshot(t, 1, `{}`)
	e := s.table.Member(0).Endpoint
	ctx := picker.NewContext(context.Background(), picker.Request{ModelID: "m", Tokens: 1000})
	info := gbalancer.PickInfo{FullMethodName: inferMethod, Ctx: ctx}
	r, err := s.Pick(info)
	require.NoError(t, err)
	require.Equal(t, fakeConn{i: 0}, r.SubConn)
	require.Equal(t, []int64{1, 1000}, []int64{int64(e.InFlight()), e.CostInFlight()})
	r.Done(answered)
	require.Equal(t, []int64{0, 0}, []int64{int64(e.InFlight()), e.CostInFlight()})
	require.Positive(t, e.Latency())
	require.Positive(t, e.Service(picker.Key("m")))
	require.EqualValues(t, 1, e.Picks(picker.Home))
}

func TestARecordKeepsTheRequestOfTheFirstPick(t *testing.T) {
	s := readySnapshot(t, 1, `{}`)
	want := picker.Request{ModelID: "m"}
	ctx, call := picker.NewCall(picker.NewContext(context.Background(), want), nil)
	for range 2 {
		r, err := s.Pick(gbalancer.PickInfo{FullMethodName: inferMethod, Ctx: ctx})
		require.NoError(t, err)
		r.Done(answered)
		got, key := call.Resolved()
		require.Equal(t, &want, got)
		require.Equal(t, picker.Key("m"), key)
	}
}

func TestAZeroDoneInfoNeverHappened(t *testing.T) {
	s := readySnapshot(t, 1, `{}`)
	e := s.table.Member(0).Endpoint
	ctx, call := picker.NewCall(picker.NewContext(context.Background(), picker.Request{ModelID: "m"}), nil)
	r, err := s.Pick(gbalancer.PickInfo{FullMethodName: inferMethod, Ctx: ctx})
	require.NoError(t, err)
	require.Len(t, call.Tried(), 1)
	r.Done(gbalancer.DoneInfo{})
	require.Empty(t, call.Tried())
	require.Zero(t, e.InFlight())
	require.Zero(t, e.Picks(picker.Home))
	require.Zero(t, e.Latency())
}

func TestWhatSaysNothingAboutAnEndpointLeavesItsLatency(t *testing.T) {
	s := readySnapshot(t, 1, `{}`)
	e := s.table.Member(0).Endpoint
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	for _, tc := range []struct {
		ctx context.Context
		err error
	}{
		{context.Background(), status.Error(codes.InvalidArgument, "shape")},
		{gone, status.Error(codes.Canceled, "context canceled")},
	} {
		r, err := s.Pick(gbalancer.PickInfo{FullMethodName: inferMethod, Ctx: tc.ctx})
		require.NoError(t, err)
		r.Done(gbalancer.DoneInfo{Err: tc.err, BytesSent: true})
		require.Zero(t, e.Latency())
		require.Zero(t, e.InFlight())
	}
}

func TestARetryAvoidsWhatWasTried(t *testing.T) {
	s := readySnapshot(t, 3, `{}`)
	d := &picker.Decision{}
	ctx, call := picker.NewCall(picker.NewContext(context.Background(), picker.Request{ModelID: "m"}), nil)
	call.Decision = d
	seen := map[string]bool{}
	for attempt := 1; attempt <= 3; attempt++ {
		r, err := s.Pick(gbalancer.PickInfo{FullMethodName: inferMethod, Ctx: ctx})
		require.NoError(t, err)
		r.Done(gbalancer.DoneInfo{Err: status.Error(codes.Unavailable, "gone"), BytesSent: true})
		require.Equal(t, attempt, d.Attempt)
		require.Equal(t, "m", d.Model)
		seen[d.Endpoint] = true
	}
	require.Len(t, seen, 3)
}

func TestPickWithoutAReadyEndpoint(t *testing.T) {
	s := readySnapshot(t, 2, `{}`)
	info := gbalancer.PickInfo{FullMethodName: inferMethod, Ctx: picker.NewContext(context.Background(), picker.Request{ModelID: "m"})}
	s.table = s.table.WithStatus([]picker.Status{picker.Down, picker.Down})
	_, err := s.Pick(info)
	require.Equal(t, s.refusal, err)
	s.table = s.table.WithStatus([]picker.Status{picker.Pending, picker.Pending})
	_, err = s.Pick(info)
	require.Equal(t, gbalancer.ErrNoSubConnAvailable, err, "gRPC compares it with ==")
}

func TestRequestPrecedence(t *testing.T) {
	c, err := ParseConfig([]byte(`{"request":{"updateMethods":["/a.B/Load","/a.U/*"],"modelFields":{"/a.B/*":"1","/a.B/Other":"2"}}}`))
	require.NoError(t, err)
	r := newRequestReader(&c.Request)
	message := wrapperspb.String("from-message")
	md := metadata.AppendToOutgoingContext(context.Background(), "mm-model-id", "from-metadata")
	own := func(ctx context.Context, req picker.Request) context.Context { return picker.NewContext(ctx, req) }
	for _, tc := range []struct {
		name, method string
		ctx          context.Context
		want         picker.Request
	}{
		{"message", inferMethod, context.Background(), picker.Request{ModelID: "from-message"}},
		{"metadata over message", inferMethod, md, picker.Request{ModelID: "from-metadata"}},
		{"caller over metadata", inferMethod, own(md, picker.Request{ModelID: "mine"}), picker.Request{ModelID: "mine"}},
		{"caller without a model", inferMethod, own(md, picker.Request{Tokens: 9}), picker.Request{ModelID: "from-metadata", Tokens: 9}},
		{"caller's type over the method's", "/a.B/Load", own(md, picker.Request{Type: picker.Inference, ModelID: "m"}), picker.Request{Type: picker.Inference, ModelID: "m"}},
		{"configured update", "/a.B/Load", context.Background(), picker.Request{Type: picker.Update, ModelID: "from-message"}},
		{"configured update service", "/a.U/Any", context.Background(), picker.Request{Type: picker.Update}},
		{"configured field of a service", "/a.B/Any", context.Background(), picker.Request{ModelID: "from-message"}},
		{"a method's field over its service's", "/a.B/Other", context.Background(), picker.Request{}},
		{"unknown method", "/c.D/E", context.Background(), picker.Request{}},
		{"known update", "/inference.GRPCInferenceService/RepositoryModelLoad", md, picker.Request{Type: picker.Update, ModelID: "from-metadata"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for range 2 { // the second time, the method is known
				_, own, ownKey := picker.Find(tc.ctx)
				var q picker.Query
				r.read(&q, own, ownKey, &gbalancer.PickInfo{FullMethodName: tc.method, Ctx: tc.ctx}, message)
				require.Equal(t, tc.want, q.Request)
				require.Equal(t, picker.Key(q.ModelID), q.Key)
			}
		})
	}
}

func TestAffinityKey(t *testing.T) {
	reader := func(config string) *requestReader {
		c, err := ParseConfig([]byte(config))
		require.NoError(t, err)
		return newRequestReader(&c.Request)
	}
	configured := reader(`{"request":{"affinityHeader":"X-Session"}}`)
	md := metadata.AppendToOutgoingContext(context.Background(), "x-session", "from-metadata")
	full := picker.Request{ModelID: "m", Type: picker.Inference}
	for _, tc := range []struct {
		name   string
		reader *requestReader
		ctx    context.Context
		own    picker.Request
		want   string
	}{
		{"header", configured, md, picker.Request{}, "from-metadata"},
		{"header, and all else from the caller", configured, md, full, "from-metadata"},
		{"caller over header", configured, md, picker.Request{AffinityKey: "mine"}, "mine"},
		{"no header", configured, context.Background(), full, ""},
		{"header too long", configured, metadata.AppendToOutgoingContext(context.Background(), "x-session", strings.Repeat("s", 513)), full, ""},
		{"no header configured", reader(`{}`), md, full, ""},
		{"caller, no header configured", reader(`{}`), md, picker.Request{AffinityKey: "mine"}, "mine"},
	} {
		var q picker.Query
		tc.reader.read(&q, &tc.own, picker.Key(tc.own.ModelID), &gbalancer.PickInfo{FullMethodName: inferMethod, Ctx: tc.ctx}, nil)
		tc.own.AffinityKey = tc.want
		require.Equal(t, tc.own, q.Request, tc.name)
	}
}

func BenchmarkPick(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprintf("n=%d", n), func(b *testing.B) {
			s := readySnapshot(b, n, `{}`)
			infos := make([]gbalancer.PickInfo, 1024)
			for i := range infos {
				infos[i] = gbalancer.PickInfo{FullMethodName: inferMethod,
					Ctx: picker.NewContext(context.Background(), picker.Request{ModelID: fmt.Sprintf("model-%020d", i)})}
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				r, _ := s.Pick(infos[i&1023])
				r.Done(answered)
				i++
			}
		})
	}
}

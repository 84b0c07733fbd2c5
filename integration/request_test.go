package integration

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/apipb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/mlbalancer/mlbalancer"
	"github.com/mlbalancer/mlbalancer/integration/rig"
	"github.com/mlbalancer/mlbalancer/picker"
)

// placed sends a call and returns where it was sent, and for which model.
func placed(t *testing.T, c *rig.Client, ctx context.Context, method string, msg proto.Message) picker.Decision {
	t.Helper()
	var d picker.Decision
	require.NoError(t, c.Invoke(ctx, method, msg, &wrapperspb.StringValue{}, mlbalancer.WithDecision(&d)))
	require.Equal(t, 1, d.Attempt)
	return d
}

// firstIs is a message whose field 1 is a string, as that of ModelInferRequest is the model's name; secondIs has the string in
// field 2.
func firstIs(s string) proto.Message  { return wrapperspb.String(s) }
func secondIs(s string) proto.Message { return &apipb.Mixin{Root: s} }

func TestTheMethodDecidesTheStrategy(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const config = `{"request":{"updateMethods":["/acme.Admin/*","/acme.Models/Put"],"modelFields":{"/acme.Models/*":"2"}}}`
		f := rig.New(t, 4)
		for _, b := range f.Backends {
			b.Takes(time.Millisecond)
		}
		c := f.Client(rig.Setup{Config: config, Options: interceptors})
		c.Ready(4)
		at := home(t, config, "m", f.Endpoints()...)
		for _, call := range []struct {
			method string
			msg    proto.Message
			update bool
			model  string
		}{
			{rig.Infer, firstIs("m"), false, "m"},
			{rig.Load, secondIs("m"), true, "m"},
			{"/inference.GRPCInferenceService/RepositoryModelUnload", secondIs("m"), true, "m"},
			{"/inference.GRPCInferenceService/ModelReady", firstIs("m"), false, "m"},
			{"/acme.Models/Run", secondIs("m"), false, "m"},
			{"/acme.Models/Put", secondIs("m"), true, "m"},
			{"/acme.Admin/Reload", secondIs("m"), true, ""},
		} {
			endpoints := map[string]int{}
			for range 100 {
				d := placed(t, c, t.Context(), call.method, call.msg)
				endpoints[d.Endpoint]++
				require.Equal(t, call.model, d.Model, call.method)
				if call.update {
					require.Contains(t, []picker.Reason{picker.LessLoaded, picker.Tie}, d.Reason, call.method)
				} else {
					require.Equal(t, picker.Home, d.Reason, call.method)
				}
			}
			if call.update {
				require.Len(t, endpoints, 4, "%s is spread", call.method)
			} else {
				require.Equal(t, map[string]int{at: 100}, endpoints, call.method)
			}
		}
	})
}

func TestTheCallerKnowsBestThenMetadataThenTheMessage(t *testing.T) {
	t.Parallel()
	f := rig.New(t, 4)
	c := f.Client(rig.Setup{Options: mlbalancer.DialOptions()})
	c.Ready(4)
	in := func(ctx context.Context, key, value string) context.Context {
		return metadata.AppendToOutgoingContext(ctx, key, value)
	}
	msg, tagged := firstIs("of-the-message"), in(t.Context(), rig.ModelHeader, "of-metadata")
	for _, call := range []struct {
		what  string
		ctx   context.Context
		model string
	}{
		{"message", t.Context(), "of-the-message"},
		{"metadata", tagged, "of-metadata"},
		{"empty metadata", in(t.Context(), rig.ModelHeader, ""), "of-the-message"},
		{"metadata of ModelMesh", in(t.Context(), "mm-model-id", "of-metadata"), "of-metadata"},
		{"the first of several keys", in(in(t.Context(), "seldon-model", "later"), "mm-vmodel-id", "of-metadata"), "of-metadata"},
		{"context", picker.NewContext(tagged, picker.Request{ModelID: "of-the-caller"}), "of-the-caller"},
		{"context without a model", picker.NewContext(tagged, picker.Request{Tokens: 9}), "of-metadata"},
	} {
		d := placed(t, c, call.ctx, rig.Infer, msg)
		require.Equal(t, call.model, d.Model, call.what)
		require.Equal(t, home(t, `{}`, call.model, f.Endpoints()...), d.Endpoint, call.what)
		require.Equal(t, picker.Home, d.Reason, call.what)
	}

	// The type that the caller gives wins over that of the method, too.
	ctx := picker.NewContext(t.Context(), picker.Request{ModelID: "m", Type: picker.Update})
	require.NotEqual(t, picker.Home, placed(t, c, ctx, rig.Infer, msg).Reason)
	ctx = picker.NewContext(t.Context(), picker.Request{ModelID: "m", Type: picker.Inference})
	require.Equal(t, picker.Home, placed(t, c, ctx, rig.Load, msg).Reason)
}

func TestWithoutInterceptorsMetadataIsEnough(t *testing.T) {
	t.Parallel()
	f := rig.New(t, 4)
	c := f.Client(rig.Setup{})
	c.Ready(4)
	for i := range 20 {
		r := c.Send(rig.Model(i), limit)
		require.NoError(t, r.Err)
		require.Equal(t, home(t, `{}`, rig.Model(i), f.Endpoints()...), r.Backend+":1")
	}
}

func TestCallsWithoutAModelAreSpread(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := rig.New(t, 4)
		c := f.Client(rig.Setup{Options: mlbalancer.DialOptions()})
		c.Ready(4)
		rs := rig.Closed(1, 400, func(int) rig.Result {
			r, d := decide(c, "")
			require.Contains(t, []picker.Reason{picker.LessLoaded, picker.Tie}, d.Reason)
			require.Empty(t, d.Model)
			return r
		})
		require.Empty(t, rs.Failed(), "%v", rs)
		for _, b := range f.Backends {
			require.InDelta(t, 100, rs.By()[b.Name], 45, b.Name)
		}
	})
}

func TestAStreamGoesWhereItsFirstMessageSays(t *testing.T) {
	t.Parallel()
	f := rig.New(t, 4)
	c := f.Client(rig.Setup{Options: mlbalancer.DialOptions()})
	c.Ready(4)
	for i := range 10 {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		var d picker.Decision
		s, err := c.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, rig.Stream, mlbalancer.WithDecision(&d))
		require.NoError(t, err)
		for range 3 {
			require.NoError(t, s.SendMsg(firstIs(rig.Model(i))))
			var reply wrapperspb.StringValue
			require.NoError(t, s.RecvMsg(&reply))
			require.Equal(t, home(t, `{}`, rig.Model(i), f.Endpoints()...), reply.Value+":1")
		}
		at := c.Endpoint(reply(t, c, i))
		require.Equal(t, 1, at.InFlight, "the stream counts for as long as it is open")
		require.NoError(t, s.CloseSend())
		require.Error(t, s.RecvMsg(&emptypb.Empty{}))
		rig.Eventually(t, func() bool { return c.Endpoint(at.Name).InFlight == 0 }, limit, "the stream no longer counts")
		require.Equal(t, rig.Model(i), d.Model)
		require.Equal(t, picker.Home, d.Reason)
		require.Zero(t, c.Endpoint(at.Name).Latency-at.Latency, "how long a stream lasts is no latency")
		cancel()
	}
}

// reply returns the address of the i-th model's home.
func reply(t *testing.T, c *rig.Client, i int) string {
	t.Helper()
	r := c.Send(rig.Model(i), time.Second)
	require.NoError(t, r.Err)
	return r.Backend + ":1"
}

package retry

import (
	"bytes"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/mlbalancer/mlbalancer/internal/oip"
	"github.com/mlbalancer/mlbalancer/picker"
)

// receive does to options what grpc does after an attempt that reached a server.
func receive(name string) func(attempt) {
	return func(a attempt) {
		for _, opt := range a.opts {
			switch opt := opt.(type) {
			case grpc.HeaderCallOption:
				*opt.HeaderAddr = metadata.Pairs("from", name)
			case grpc.TrailerCallOption:
				*opt.TrailerAddr = metadata.Pairs("from", name)
			case grpc.PeerCallOption:
				*opt.PeerAddr = peer.Peer{Addr: &net.UnixAddr{Name: name}}
			}
		}
	}
}

// What options receive belongs to the attempt whose result the caller gets.
func TestOptionsThatReceive(t *testing.T) {
	one, two := unavailable(1), unavailable(2)
	one.does, two.does = receive("one"), receive("two")
	good := ok()
	good.does = receive("good")
	unreachable := fails(picker.Failure, codes.Unavailable, "connection refused") // it has no headers
	for name, tc := range map[string]struct {
		answers []answer
		want    string
	}{
		"first succeeds":      {[]answer{good}, "good"},
		"second succeeds":     {[]answer{one, good}, "good"},
		"all fail":            {[]answer{one, two, two}, "two"},
		"nobody else is left": {[]answer{one, refused()}, "one"},
		"nobody third is":     {[]answer{one, two, refused()}, "two"},
		"last has none":       {[]answer{one, two, unreachable}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var header, trailer metadata.MD
			var from peer.Peer
			s := play(tc.answers...)
			s.opts = []grpc.CallOption{grpc.Header(&header), grpc.WaitForReady(true), grpc.Trailer(&trailer), grpc.Peer(&from)}
			_ = s.call(ctx, UnaryClientInterceptor())
			require.Len(t, s.attempts, len(tc.answers))
			if tc.want == "" {
				assert.Nil(t, header)
				assert.Nil(t, trailer)
				assert.Nil(t, from.Addr)
				return
			}
			assert.Equal(t, []string{tc.want}, header["from"])
			assert.Equal(t, []string{tc.want}, trailer["from"])
			assert.Equal(t, tc.want, from.Addr.String())
		})
	}
}

func TestOnFinishIsCalledOnce(t *testing.T) {
	var first, second []error
	s := play(unavailable(1), unavailable(2), ok())
	s.opts = []grpc.CallOption{
		grpc.WaitForReady(true), grpc.OnFinish(func(err error) { first = append(first, err) }),
		grpc.MaxCallRecvMsgSize(7), grpc.OnFinish(func(err error) { second = append(second, err) }),
	}
	require.NoError(t, s.call(ctx, UnaryClientInterceptor()))
	assert.Equal(t, []error{nil}, first)
	assert.Equal(t, []error{nil}, second)
	assert.Equal(t, []grpc.CallOption{grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(7)}, s.attempts[0].opts)
	assert.Len(t, s.opts, 4, "the caller's slice stays as it was")

	first = nil
	s.answers, s.attempts = []answer{unavailable(1), refused()}, nil
	err := s.call(ctx, UnaryClientInterceptor())
	require.Len(t, first, 1)
	assert.Same(t, err, first[0])
}

// No attempt finds what a failed one has left in the reply, whether or not there is an answer in the end.
func TestRepliesAreReset(t *testing.T) {
	fill := func(a attempt) {
		switch reply := a.reply.(type) {
		case *oip.ModelInferResponse:
			reply.ModelName = "half"
		case *[]byte:
			*reply = append(*reply, "half"...)
		case *bytes.Buffer:
			reply.WriteString("half")
		case *string:
			*reply += "half"
		}
	}
	full := func(reply any) int {
		switch reply := reply.(type) {
		case *oip.ModelInferResponse:
			return len(reply.ModelName)
		case *[]byte:
			return len(*reply)
		case *bytes.Buffer:
			return reply.Len()
		}
		return len(*reply.(*string))
	}
	for _, reply := range []any{&oip.ModelInferResponse{}, new([]byte), &bytes.Buffer{}} {
		half, whole := unavailable(1), ok()
		half.does = fill
		whole.does = func(a attempt) {
			assert.Zero(t, full(a.reply), "%T", reply)
			fill(a)
		}
		s := play(half, whole)
		s.reply = reply
		require.NoError(t, s.call(ctx, UnaryClientInterceptor()))
		assert.Equal(t, 4, full(reply), "%T", reply)

		s = play(half, refused())
		s.reply = reply
		require.Error(t, s.call(ctx, UnaryClientInterceptor()))
		assert.Zero(t, full(reply), "%T", reply)
	}

	text := "" // its codec is to overwrite it
	s := play(unavailable(1), ok())
	s.reply, s.answers[0].does, s.answers[1].does = &text, fill, fill
	require.NoError(t, s.call(ctx, UnaryClientInterceptor()))
	assert.Equal(t, "halfhalf", text)
}

package outcome

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
)

func TestPushbackTrailer(t *testing.T) {
	plain := status.Error(codes.Unavailable, "x")
	for name, tc := range map[string]struct {
		values []string
		want   time.Duration
	}{
		"absent":           {nil, 0},
		"zero":             {[]string{"0"}, 0},
		"milliseconds":     {[]string{"1500"}, 1500 * time.Millisecond},
		"the longest":      {[]string{"2147483647"}, 2147483647 * time.Millisecond},
		"too long":         {[]string{"2147483648"}, -1},
		"negative":         {[]string{"-1"}, -1},
		"no number":        {[]string{"soon"}, -1},
		"empty":            {[]string{""}, -1},
		"a fraction":       {[]string{"1.5"}, -1},
		"several":          {[]string{"1", "2"}, -1},
		"several the same": {[]string{"1", "1"}, -1},
	} {
		md := metadata.MD{}
		md.Append("grpc-retry-pushback-ms", tc.values...)
		assert.Equal(t, tc.want, Pushback(md, plain), name)
	}
	assert.Zero(t, Pushback(nil, plain))
	assert.Zero(t, Pushback(nil, nil))
}

func TestPushbackDetails(t *testing.T) {
	with := func(details ...protoadapt.MessageV1) error {
		s, err := status.New(codes.ResourceExhausted, "x").WithDetails(details...)
		require.NoError(t, err)
		return s.Err()
	}
	info := &errdetails.RetryInfo{RetryDelay: durationpb.New(700 * time.Millisecond)}
	assert.Equal(t, 700*time.Millisecond, Pushback(nil, with(info)))
	assert.Equal(t, 700*time.Millisecond, Pushback(nil, with(&errdetails.ErrorInfo{Reason: "QUOTA"}, info)), "after others")
	assert.Equal(t, time.Second, Pushback(metadata.Pairs("grpc-retry-pushback-ms", "1000"), with(info)), "the trailer wins")
	assert.Equal(t, time.Duration(-1), Pushback(metadata.Pairs("grpc-retry-pushback-ms", "-1"), with(info)))
	assert.Zero(t, Pushback(nil, with(&errdetails.RetryInfo{})))
	assert.Zero(t, Pushback(nil, with(&errdetails.RetryInfo{RetryDelay: durationpb.New(-time.Second)})))
	assert.Zero(t, Pushback(nil, with(&errdetails.ErrorInfo{})))
}

func TestPushbackDoesNotAllocate(t *testing.T) {
	err := status.Error(codes.Unavailable, "x")
	md := metadata.Pairs("grpc-retry-pushback-ms", "20", "content-type", "application/grpc")
	assert.Zero(t, testing.AllocsPerRun(100, func() { Pushback(md, err) }))
	assert.Zero(t, testing.AllocsPerRun(100, func() { Pushback(nil, err) }))
}

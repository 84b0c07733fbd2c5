package outcome

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer/picker"
)

func TestSuccess(t *testing.T) {
	assert.Equal(t, picker.Success, defaultTable(t).Classify(context.Background(), End{}))
}

func TestCancelled(t *testing.T) {
	table := defaultTable(t)
	alive := context.Background()
	gone, cancel := context.WithCancel(alive)
	cancel()
	cancelled := status.Error(codes.Canceled, "context canceled")

	assert.Equal(t, picker.Cancelled, table.Classify(gone, End{Err: cancelled}), "by the caller")
	assert.Equal(t, picker.Failure, table.Classify(alive, End{Err: cancelled}), "by the server")
	assert.Equal(t, picker.Cancelled, table.Classify(alive, End{Err: status.Error(codes.Canceled, closing)}), "by closing the channel")
	assert.Equal(t, picker.Cancelled, table.Classify(alive, End{Err: status.Error(codes.Unavailable,
		"closing transport due to: rpc error: code = Canceled desc = "+closing+", received prior goaway: code: NO_ERROR")}),
		"by closing a channel whose server was going away")
	assert.Equal(t, picker.Failure, table.Classify(gone, End{Err: status.Error(codes.Unavailable, "x")}),
		"a server's own failure stays one when the caller has gone meanwhile")
}

// A deadline is the endpoint's failure if it had the time.
func TestDeadline(t *testing.T) {
	table := defaultTable(t)
	exceeded := status.Error(codes.DeadlineExceeded, "context deadline exceeded")
	over, cancel := context.WithDeadline(context.Background(), time.Unix(1, 0))
	defer cancel()
	const slow = 50 * time.Millisecond
	for _, tc := range []struct {
		name string
		ctx  context.Context
		end  End
		want picker.Outcome
	}{
		{"had the slow time", over, End{exceeded, slow, slow, false}, picker.Failure},
		{"had less", over, End{exceeded, slow - 1, slow, false}, picker.Cancelled},
		{"was answering", over, End{exceeded, slow, slow, true}, picker.Cancelled},
		{"no slow time known", over, End{exceeded, 0, 0, false}, picker.Failure},
		{"the server's own", context.Background(), End{exceeded, 0, slow, true}, picker.Failure},
	} {
		t.Run(tc.name, func(t *testing.T) {
			assert.Equal(t, tc.want.String(), table.Classify(tc.ctx, tc.end).String())
		})
	}
}

// stale is a context whose deadline has passed but whose timer has not fired yet.
type stale struct{ context.Context }

func (s stale) Err() error { return nil }

func TestDeadlineBeforeItsTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		table := defaultTable(t)
		cancelled, exceeded := End{Err: status.Error(codes.Canceled, "")}, End{Err: status.Error(codes.DeadlineExceeded, ""), Slow: time.Minute}

		assert.Equal(t, picker.Failure, table.Classify(stale{ctx}, cancelled))
		assert.Equal(t, picker.Failure, table.Classify(stale{ctx}, exceeded))
		<-ctx.Done()
		assert.Equal(t, picker.Cancelled, table.Classify(stale{ctx}, cancelled))
		assert.Equal(t, picker.Cancelled, table.Classify(stale{ctx}, exceeded))
	})
}

func TestOtherErrors(t *testing.T) {
	table := defaultTable(t)
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	for name, tc := range map[string]struct {
		err  error
		ctx  context.Context
		want picker.Outcome
	}{
		"wrapped status":   {fmt.Errorf("attempt: %w", status.Error(codes.Unavailable, "Server exiting")), context.Background(), picker.Draining},
		"no status":        {errors.New("x"), context.Background(), picker.ModelFault},
		"context's own":    {context.Canceled, gone, picker.Cancelled},
		"code that is new": {status.Error(99, "x"), context.Background(), picker.ModelFault},
	} {
		assert.Equal(t, tc.want.String(), table.Classify(tc.ctx, End{Err: tc.err}).String(), name)
	}
}

func TestOverrides(t *testing.T) {
	table, err := New(map[string]string{"NOT_FOUND": "caller-fault", "UNAVAILABLE": "model-fault", "DEADLINE_EXCEEDED": "cancelled",
		"CANCELLED": "draining"})
	require.NoError(t, err)
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	judge := func(ctx context.Context, code codes.Code, text string) string {
		return table.Classify(ctx, End{Err: status.Error(code, text), Took: time.Second}).String()
	}
	assert.Equal(t, "caller-fault", judge(context.Background(), codes.NotFound, "Request for unknown model: 'x' is not found"))
	assert.Equal(t, "model-fault", judge(context.Background(), codes.Unavailable, "Server exiting"))
	assert.Equal(t, "cancelled", judge(gone, codes.DeadlineExceeded, ""))
	assert.Equal(t, "draining", judge(context.Background(), codes.Canceled, ""))
	assert.Equal(t, "cancelled", judge(gone, codes.Canceled, ""), "the caller's own")
	assert.Equal(t, "cancelled", judge(context.Background(), codes.Canceled, closing), "nobody's")
	assert.Equal(t, "model-fault", judge(context.Background(), codes.Internal, ""), "others stay")

	table, err = New(map[string]string{"DEADLINE_EXCEEDED": "failure"})
	require.NoError(t, err)
	over, cancelOver := context.WithDeadline(context.Background(), time.Unix(1, 0))
	defer cancelOver()
	assert.Equal(t, picker.Failure, table.Classify(over, End{Err: status.Error(codes.DeadlineExceeded, ""), Slow: time.Hour}),
		"an override wins over the slow time")
}

func TestOverridesOfEveryCode(t *testing.T) {
	for c := codes.Canceled; c < numCodes; c++ {
		for o := picker.Success; o < picker.NumOutcomes; o++ {
			table, err := New(map[string]string{codeNames[c]: o.String()})
			require.NoError(t, err)
			assert.Equal(t, o, table.Classify(context.Background(), End{Err: status.Error(c, "model")}))
		}
		var named codes.Code
		require.NoError(t, named.UnmarshalJSON([]byte(`"`+codeNames[c]+`"`)))
		assert.Equal(t, c, named, "gRPC's own name")
	}
}

func TestOverridesRejected(t *testing.T) {
	for _, tc := range []struct{ code, outcome, field, message string }{
		{"NOT_FOUND", "bad", "codes.NOT_FOUND", `codes.NOT_FOUND is "bad", want one of success, failure, model-fault, misplaced, ` +
			"overload, draining, caller-fault, cancelled"},
		{"NOT_FOUND", "", "codes.NOT_FOUND", `codes.NOT_FOUND is ""`},
		{"NOT_FOUND", "unsent", "codes.NOT_FOUND", `codes.NOT_FOUND is "unsent"`},
		{"NotFound", "failure", "codes", `codes is "NotFound", want keys among CANCELLED, UNKNOWN,`},
		{"OK", "failure", "codes", `codes is "OK"`},
		{"", "failure", "codes", `codes is ""`},
	} {
		table, err := New(map[string]string{tc.code: tc.outcome})
		assert.Nil(t, table)
		require.ErrorContains(t, err, tc.message)
		var field *picker.FieldError
		require.ErrorAs(t, err, &field)
		assert.Equal(t, tc.field, field.Field)
	}
}

func TestClassifyDoesNotAllocate(t *testing.T) {
	table := defaultTable(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	for _, err := range []error{
		nil,
		status.Error(codes.NotFound, "Request for unknown model: 'x' has no available versions"),
		status.Error(codes.Unavailable, "error reading from server: EOF"),
		status.Error(codes.Internal, "Stub process 'echo_0_0' is not healthy."),
		status.Error(codes.DeadlineExceeded, "context deadline exceeded"),
		status.Error(codes.Canceled, "context canceled"),
	} {
		assert.Zero(t, testing.AllocsPerRun(100, func() { table.Classify(ctx, End{Err: err}) }), "%v", err)
	}
}

func BenchmarkClassify(b *testing.B) {
	table := defaultTable(b)
	ctx := context.Background()
	for name, err := range map[string]error{
		"ok": nil, "longest": status.Error(codes.Unavailable, `connection error: desc = "transport: Error while dialing: dial tcp"`),
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				table.Classify(ctx, End{Err: err})
			}
		})
	}
}

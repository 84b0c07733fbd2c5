package retry

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer/internal/oip"
	"github.com/mlbalancer/mlbalancer/picker"
)

var ctx = context.Background()

func unavailable(n int) answer {
	return fails(picker.Failure, codes.Unavailable, fmt.Sprint("server ", n))
}

// Each outcome by itself: whether another server is asked.
func TestOutcomes(t *testing.T) {
	for o := picker.Unsent; o < picker.NumOutcomes; o++ {
		t.Run(o.String(), func(t *testing.T) {
			s := play(fails(o, codes.Unavailable, "x"), ok())
			err := s.call(ctx, UnaryClientInterceptor())
			switch o {
			case picker.Failure, picker.ModelFault, picker.Misplaced, picker.Overload, picker.Draining:
				require.NoError(t, err)
				require.Len(t, s.attempts, 2)
			default:
				require.Same(t, s.answers[0].err, err)
				require.Len(t, s.attempts, 1)
			}
		})
	}
}

func TestSuccessIsLeftAlone(t *testing.T) {
	s := play(ok())
	s.opts = []grpc.CallOption{grpc.WaitForReady(true)}
	require.NoError(t, s.call(ctx, UnaryClientInterceptor()))
	require.Len(t, s.attempts, 1)
	assert.Equal(t, s.opts, s.attempts[0].opts)
	assert.False(t, s.attempts[0].fresh)
}

// The first attempt may go anywhere, those after it only to new endpoints, and they do not wait for one.
func TestFurtherAttempts(t *testing.T) {
	s := play(unavailable(1), unavailable(2), ok())
	wait, limit := grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(7)
	s.opts = append(make([]grpc.CallOption, 0, 9), wait, limit)
	callCtx, call := picker.NewCall(ctx, s.req)
	require.NoError(t, UnaryClientInterceptor()(callCtx, s.method, s.req, s.reply, nil, s.invoke, s.opts...))
	require.Len(t, s.attempts, 3)
	for i, a := range s.attempts {
		assert.Equal(t, i > 0, a.fresh)
		assert.Same(t, callCtx, a.ctx)
		assert.Same(t, s.req, a.req)
		assert.Same(t, s.reply, a.reply)
		if i == 0 {
			assert.Equal(t, []grpc.CallOption{wait, limit}, a.opts)
		} else {
			assert.Equal(t, []grpc.CallOption{wait, limit, grpc.WaitForReady(false)}, a.opts, "the last one counts")
		}
	}
	assert.Nil(t, s.opts[:3][2], "the caller's slice is not written to")
	assert.False(t, call.Fresh, "left as it was")
}

func TestAttemptsAreUsedUp(t *testing.T) {
	for n := 1; n <= maxAttempts; n++ {
		var answers []answer
		for i := range n + 1 {
			answers = append(answers, unavailable(i))
		}
		var stats Stats
		s := play(answers...)
		err := s.call(ctx, UnaryClientInterceptor(WithMaxAttempts(n), WithStats(&stats)))
		assert.Len(t, s.attempts, n)
		assert.Same(t, answers[n-1].err, err, "the last server's own error")
		assert.EqualValues(t, n-1, stats.Sent.Load())
		assert.EqualValues(t, 1, stats.Exhausted.Load())
		assert.Zero(t, stats.Refused.Load())
	}
	s := play(unavailable(1), unavailable(2), unavailable(3), ok())
	assert.Same(t, s.answers[2].err, s.call(ctx, UnaryClientInterceptor()), "three by default")
}

func TestNothingUntriedIsLeft(t *testing.T) {
	var stats Stats
	budget := NewBudget(0, .1) // one
	intercept := UnaryClientInterceptor(WithStats(&stats), WithBudget(budget))
	for range 3 {
		s := play(unavailable(1), refused(), ok())
		assert.Same(t, s.answers[0].err, s.call(ctx, intercept))
		assert.Len(t, s.attempts, 2)
	}
	assert.Zero(t, stats.Sent.Load())
	assert.EqualValues(t, 3, stats.Exhausted.Load())
	assert.Zero(t, stats.Refused.Load(), "what was not sent is not paid for")

	s := play(unavailable(1), unavailable(2), refused())
	assert.Same(t, s.answers[1].err, s.call(ctx, UnaryClientInterceptor()))
}

// A model is looked for on three servers, and the caller gets their own word.
func TestMisplaced(t *testing.T) {
	missing := fails(picker.Misplaced, codes.NotFound, "Request for unknown model: 'm' is not found")
	var stats Stats
	s := play(missing, missing, missing, ok())
	err := s.call(ctx, UnaryClientInterceptor(WithMaxAttempts(5), WithStats(&stats)))
	assert.Len(t, s.attempts, 3)
	assert.Same(t, missing.err, err)
	assert.EqualValues(t, 1, stats.Exhausted.Load())

	s = play(unavailable(1), missing, unavailable(3), missing, ok())
	assert.Same(t, s.answers[3].err, s.call(ctx, UnaryClientInterceptor(WithMaxAttempts(4))), "attempts are counted, not misses")
}

func TestOverloadOnce(t *testing.T) {
	full := fails(picker.Overload, codes.Unavailable, "Exceeds maximum queue size")
	s := play(full, full, ok())
	assert.Same(t, full.err, s.call(ctx, UnaryClientInterceptor()))
	assert.Len(t, s.attempts, 2)

	s = play(unavailable(1), full, ok())
	assert.NoError(t, s.call(ctx, UnaryClientInterceptor()))
	s = play(full, unavailable(2), ok())
	assert.NoError(t, s.call(ctx, UnaryClientInterceptor()), "others go on")
	s = play(full, unavailable(2), full, ok())
	assert.Same(t, full.err, s.call(ctx, UnaryClientInterceptor(WithMaxAttempts(5))), "once a call")
}

func TestPushback(t *testing.T) {
	pushed := func(d time.Duration) answer {
		a := fails(picker.Overload, codes.ResourceExhausted, "x")
		a.pushback = d
		return a
	}
	for _, tc := range []struct {
		name     string
		pushback time.Duration
		deadline time.Duration
		retried  bool
	}{
		{"none", 0, time.Second, true},
		{"never", -1, time.Second, false},
		{"in time", 999 * time.Millisecond, time.Second, true},
		{"too late", time.Second, time.Second, false},
		{"no deadline", 10 * time.Second, 0, true},
		{"no deadline, too long", 10*time.Second + 1, 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := ctx
				if tc.deadline > 0 {
					var cancel func()
					ctx, cancel = context.WithTimeout(ctx, tc.deadline)
					defer cancel()
				}
				var stats Stats
				s, began := play(pushed(tc.pushback), ok()), time.Now()
				err := s.call(ctx, UnaryClientInterceptor(WithStats(&stats)))
				if tc.retried {
					require.NoError(t, err)
					require.Equal(t, tc.pushback, time.Since(began))
				} else {
					require.Same(t, s.answers[0].err, err)
					require.Zero(t, time.Since(began), "the caller learns at once")
					require.Zero(t, stats.Exhausted.Load()+stats.Refused.Load()+stats.Sent.Load())
				}
			})
		})
	}
}

// A server that is broken may push back as well.
func TestPushbackOfAFailure(t *testing.T) {
	never := unavailable(1)
	never.pushback = -1
	s := play(never, ok())
	assert.Same(t, never.err, s.call(ctx, UnaryClientInterceptor()))
}

func TestCancelledWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := NewBudget(0, .1)
		ctx, cancel := context.WithCancel(ctx)
		full := fails(picker.Overload, codes.ResourceExhausted, "x")
		full.pushback = 5 * time.Second
		s := play(full, ok())
		done := make(chan error)
		go func() { done <- s.call(ctx, UnaryClientInterceptor(WithBudget(budget))) }()
		synctest.Wait()
		cancel()
		assert.Equal(t, codes.Canceled, status.Code(<-done))
		assert.Len(t, s.attempts, 1)
		assert.True(t, budget.TryWithdraw(monotonic()), "it was not sent")
	})
}

func TestCallIsOver(t *testing.T) {
	t.Run("deadline", func(t *testing.T) {
		s := play(fails(picker.Failure, codes.DeadlineExceeded, "context deadline exceeded"), ok())
		assert.Same(t, s.answers[0].err, s.call(ctx, UnaryClientInterceptor()), "also where it is that of one attempt, or the server's")
		assert.Len(t, s.attempts, 1)
	})
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(ctx)
		s := play(unavailable(1), ok())
		s.answers[0].does = func(attempt) { cancel() }
		assert.Same(t, s.answers[0].err, s.call(ctx, UnaryClientInterceptor()))
		assert.Len(t, s.attempts, 1)
	})
	t.Run("cancelled while it waits for an endpoint", func(t *testing.T) {
		ctx, cancel := context.WithCancel(ctx)
		s := play(unavailable(1), answer{err: status.Error(codes.Canceled, "context canceled"), unplaced: true})
		s.answers[1].does = func(attempt) { cancel() }
		assert.Same(t, s.answers[1].err, s.call(ctx, UnaryClientInterceptor()))
	})
	t.Run("caller's fault at the second", func(t *testing.T) {
		s := play(unavailable(1), fails(picker.CallerFault, codes.InvalidArgument, "x"), ok())
		assert.Same(t, s.answers[1].err, s.call(ctx, UnaryClientInterceptor()))
		assert.Len(t, s.attempts, 2)
	})
}

// A server that did no work for the call costs nothing to pass over.
func TestReroutingIsFree(t *testing.T) {
	intercept := UnaryClientInterceptor(WithBudget(NewBudget(0, 0)))
	for _, o := range []picker.Outcome{picker.Misplaced, picker.Draining} {
		require.NoError(t, play(fails(o, codes.NotFound, "no"), fails(o, codes.NotFound, "no"), ok()).call(ctx, intercept), o)
	}
	require.Error(t, play(unavailable(1), ok()).call(ctx, intercept))
}

func TestBudgetIsSpent(t *testing.T) {
	var stats Stats
	intercept := UnaryClientInterceptor(WithStats(&stats), WithBudget(NewBudget(.1, 0)))
	for range 19 {
		require.NoError(t, play(ok()).call(ctx, intercept))
	}
	for range 2 {
		require.NoError(t, play(unavailable(1), ok()).call(ctx, intercept))
	}
	s := play(unavailable(1), ok())
	require.Same(t, s.answers[0].err, s.call(ctx, intercept))
	assert.EqualValues(t, 2, stats.Sent.Load())
	assert.EqualValues(t, 1, stats.Refused.Load())
	assert.Zero(t, stats.Exhausted.Load())
}

func TestDefaultBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		intercept := UnaryClientInterceptor(WithBudget(nil), WithStats(nil))
		retried := 0
		for range 1000 {
			if s := play(unavailable(1), ok()); s.call(ctx, intercept) == nil {
				retried++
			}
		}
		assert.InDelta(t, 200, retried, 1)
	})
}

// What is not an inference call of a channel of ours passes through, and earns nothing.
func TestOtherCalls(t *testing.T) {
	for name, change := range map[string]func(*script){
		"update":         func(s *script) { s.method = "/inference.GRPCInferenceService/RepositoryModelLoad" },
		"metadata":       func(s *script) { s.method = "/inference.GRPCInferenceService/ModelReady" },
		"unknown method": func(s *script) { s.method = "/my.Service/Predict" },
	} {
		t.Run(name, func(t *testing.T) {
			budget := NewBudget(1, 0)
			s := play(unavailable(1), ok())
			change(s)
			require.Same(t, s.answers[0].err, s.call(ctx, UnaryClientInterceptor(WithBudget(budget))))
			require.Len(t, s.attempts, 1)
			require.False(t, budget.TryWithdraw(monotonic()))
		})
	}
	t.Run("no record", func(t *testing.T) {
		s := play(unavailable(1), ok())
		require.Same(t, s.answers[0].err, UnaryClientInterceptor()(ctx, infer, s.req, s.reply, nil, s.invoke))
		require.Len(t, s.attempts, 1)
	})
	t.Run("read-out", func(t *testing.T) {
		s := play(unavailable(1), ok())
		callCtx, call := picker.NewCall(ctx, nil)
		call.Inspect = func(any) {}
		require.Same(t, s.answers[0].err, UnaryClientInterceptor()(callCtx, infer, s.req, s.reply, nil, s.invoke))
		require.Len(t, s.attempts, 1)
	})
	t.Run("another policy", func(t *testing.T) {
		s := play(unavailable(1), ok())
		s.answers[0].mute = true
		require.Same(t, s.answers[0].err, s.call(ctx, UnaryClientInterceptor()))
		require.Len(t, s.attempts, 1)
	})
}

// What is tied to one server stays with it.
func TestTiedCalls(t *testing.T) {
	parameters := func(key string) map[string]*oip.InferParameter { return map[string]*oip.InferParameter{key: {}} }
	for name, change := range map[string]func(*script){
		"sequence": func(s *script) { s.req = &oip.ModelInferRequest{Parameters: parameters("sequence_id")} },
		"shared memory": func(s *script) {
			s.req = &oip.ModelInferRequest{
				Inputs: []*oip.ModelInferRequest_InferInputTensor{{Parameters: parameters("shared_memory_region")}}}
		},
		"unreadable":       func(s *script) { s.req = 7 },
		"update by config": func(s *script) { s.request.Type = picker.Update },
	} {
		t.Run(name, func(t *testing.T) {
			s := play(unavailable(1), ok())
			change(s)
			require.Same(t, s.answers[0].err, s.call(ctx, UnaryClientInterceptor()))
			require.Len(t, s.attempts, 1)
		})
	}
}

func TestWithMaxAttemptsRejects(t *testing.T) {
	for _, n := range []int{-1, 0, 6} {
		assert.PanicsWithValue(t, fmt.Sprintf("retry: WithMaxAttempts: n is %d, want 1 to 5", n), func() { WithMaxAttempts(n) })
	}
}

func TestConcurrentCalls(t *testing.T) {
	var stats Stats
	intercept := UnaryClientInterceptor(WithStats(&stats), WithBudget(NewBudget(1, 0)))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				assert.NoError(t, play(unavailable(1), ok()).call(ctx, intercept))
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, 800, stats.Sent.Load())
}

// happy is a call that succeeds, and nothing else.
func happy(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return nil }

func TestSuccessDoesNotAllocate(t *testing.T) {
	intercept := UnaryClientInterceptor()
	callCtx, _ := picker.NewCall(ctx, nil)
	req, reply := &oip.ModelInferRequest{}, &oip.ModelInferResponse{}
	opts := []grpc.CallOption{grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(1)}
	assert.Zero(t, testing.AllocsPerRun(100, func() { _ = intercept(callCtx, infer, req, reply, nil, happy, opts...) }))
}

func BenchmarkSuccess(b *testing.B) {
	intercept := UnaryClientInterceptor()
	callCtx, _ := picker.NewCall(ctx, nil)
	req, reply := &oip.ModelInferRequest{}, &oip.ModelInferResponse{}
	b.ReportAllocs()
	for b.Loop() {
		_ = intercept(callCtx, infer, req, reply, nil, happy)
	}
}

package mlbalancer_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/mlbalancer/mlbalancer"
	"github.com/mlbalancer/mlbalancer/balancer"
	"github.com/mlbalancer/mlbalancer/internal/oip"
	"github.com/mlbalancer/mlbalancer/picker"
)

// spread places what belongs to no sequence anywhere, whatever the model.
func spread() mlbalancer.Option {
	return mlbalancer.WithConfig(&balancer.Config{Inference: balancer.StrategyConfig{Strategy: "p2c"}})
}

// step is one request of a sequence, whose id is an int64, a uint64 or a string; nil for one that belongs to none.
type step struct {
	model      string
	id         any
	start, end bool
}

func (s step) message() *oip.ModelInferRequest {
	parameters := map[string]*oip.InferParameter{}
	switch id := s.id.(type) {
	case int64:
		parameters["sequence_id"] = &oip.InferParameter{ParameterChoice: &oip.InferParameter_Int64Param{Int64Param: id}}
	case uint64:
		parameters["sequence_id"] = &oip.InferParameter{ParameterChoice: &oip.InferParameter_Uint64Param{Uint64Param: id}}
	case string:
		parameters["sequence_id"] = &oip.InferParameter{ParameterChoice: &oip.InferParameter_StringParam{StringParam: id}}
	}
	if s.start {
		parameters["sequence_start"] = &oip.InferParameter{ParameterChoice: &oip.InferParameter_BoolParam{BoolParam: true}}
	}
	if s.end {
		parameters["sequence_end"] = &oip.InferParameter{ParameterChoice: &oip.InferParameter_BoolParam{BoolParam: true}}
	}
	return &oip.ModelInferRequest{ModelName: s.model, Parameters: parameters}
}

// take sends a step and returns where it went and why.
func take(t *testing.T, cc *grpc.ClientConn, s step, opts ...grpc.CallOption) (picker.Decision, error) {
	t.Helper()
	var d picker.Decision
	reply := &wrapperspb.StringValue{}
	err := cc.Invoke(deadline(t), modelInfer, s.message(), reply, append(opts, mlbalancer.WithDecision(&d))...)
	if err == nil {
		assert.Equal(t, d.Endpoint, serverOf(reply))
	}
	return d, err
}

func mustTake(t *testing.T, cc *grpc.ClientConn, s step) picker.Decision {
	t.Helper()
	d, err := take(t, cc, s)
	require.NoError(t, err)
	return d
}

func TestSequencesStayOnTheirServers(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]mlbalancer.Option{
		"with retries": {spread()}, "without": {spread(), mlbalancer.WithoutRetry()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, 5)
			cc := s.clientOf(t, s.target, mlbalancer.DialOptions(opts...)...)
			ready(t, cc, 5)
			homes, others := map[string]bool{}, map[string]bool{}
			for _, id := range []any{int64(7), uint64(8), "7", "a", "b", "c", "d", "e"} {
				first := mustTake(t, cc, step{"m", id, true, false})
				require.NotEqual(t, picker.Sequence, first.Reason, "%v is placed like any call", id)
				homes[first.Endpoint] = true
				for i := range 50 {
					d := mustTake(t, cc, step{"m", id, false, i == 49})
					require.Equal(t, picker.Decision{Endpoint: first.Endpoint, Model: "m", Reason: picker.Sequence, Attempt: 1}, d)
					others[mustTake(t, cc, step{model: "m"}).Endpoint] = true
				}
				assert.NotEqual(t, picker.Sequence, mustTake(t, cc, step{"m", id, false, false}).Reason, "the sequence is over")
			}
			assert.Len(t, others, 5)
			assert.Greater(t, len(homes), 1)
		})
	}
}

func TestWhichSequenceACallBelongsTo(t *testing.T) {
	t.Parallel()
	s := serve(t, 3)
	opts := mlbalancer.DialOptions(spread())
	cc, other := s.clientOf(t, s.target, opts...), s.clientOf(t, s.target, opts...)
	for _, tc := range []struct {
		name string
		cc   *grpc.ClientConn
		step step
		want bool // it is one that is known
	}{
		{"the first of a number, without a flag", cc, step{"m", int64(7), false, false}, false},
		{"the second", cc, step{"m", int64(7), false, false}, true},
		{"the same number, unsigned", cc, step{"m", uint64(7), false, false}, true},
		{"the same digits as a text", cc, step{"m", "7", false, false}, false},
		{"the second of the text", cc, step{"m", "7", false, false}, true},
		{"of another model", cc, step{"n", int64(7), false, false}, false},
		{"the second of that", cc, step{"n", int64(7), false, false}, true},
		{"on another channel of the same options", other, step{"m", int64(7), false, false}, false},
		{"started anew", cc, step{"m", int64(7), true, false}, false},
		{"the one of the other model", cc, step{"n", int64(7), false, true}, true},
		{"after its end", cc, step{"n", int64(7), false, false}, false},
		{"started and ended", cc, step{"m", int64(7), true, true}, false},
		{"after that", cc, step{"m", int64(7), false, false}, false},
		{"none", cc, step{"m", int64(0), false, false}, false},
		{"none either", cc, step{"m", int64(0), false, false}, false},
	} {
		assert.Equal(t, tc.want, mustTake(t, tc.cc, tc.step).Reason == picker.Sequence, tc.name)
	}
}

func TestAServerDiesWithItsSequences(t *testing.T) {
	t.Parallel()
	s := serve(t, 4)
	cc := s.clientOf(t, s.target, mlbalancer.DialOptions(spread())...)
	ready(t, cc, 4)
	home := mustTake(t, cc, step{"m", "chat", true, false}).Endpoint
	s.running[home].Stop()
	served := s.streams.Load()
	want := fmt.Sprintf(`sequence "chat" of model "m" is held by %s`, home)
	for i := range 20 {
		_, err := take(t, cc, step{"m", "chat", false, i%2 == 0})
		require.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
		if i > 0 { // the first may have been on the connection that broke
			require.ErrorContains(t, err, want)
		}
	}
	assert.Equal(t, served, s.streams.Load(), "nothing reaches another server")

	// A call that waits for ready waits for that server.
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	err := cc.Invoke(ctx, modelInfer, step{"m", "chat", false, false}.message(), text(""), grpc.WaitForReady(true))
	assert.Equal(t, codes.DeadlineExceeded, status.Code(err), "%v", err)
	assert.ErrorContains(t, err, want)
	assert.Equal(t, served, s.streams.Load())

	again := mustTake(t, cc, step{"m", "chat", true, false})
	assert.NotEqual(t, home, again.Endpoint)
	assert.Equal(t, again.Endpoint, mustTake(t, cc, step{"m", "chat", false, false}).Endpoint)
}

func TestASequenceWaitsForItsServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testASequenceWaitsForItsServer)
}

func testASequenceWaitsForItsServer(t *testing.T) {
	s := serve(t, 3)
	cc := s.clientOf(t, s.target, mlbalancer.DialOptions(spread())...)
	ready(t, cc, 3)
	home := mustTake(t, cc, step{"m", int64(1), true, false}).Endpoint
	mend := s.cut(home)
	defer mend()
	served := s.streams.Load()
	require.Eventually(t, func() bool { // once nobody takes the connection for whole any more, nor expects it back at once
		_, err := take(t, cc, step{"m", int64(1), false, false})
		return err != nil && strings.Contains(err.Error(), "sequence 1 of model")
	}, patience, time.Millisecond)
	waited := make(chan error, 1)
	go func() {
		d, err := take(t, cc, step{"m", int64(1), false, false}, grpc.WaitForReady(true))
		assert.Equal(t, home, d.Endpoint)
		waited <- err
	}()
	synctest.Wait()
	select {
	case err := <-waited:
		t.Fatal("it did not wait: ", err)
	default:
	}
	assert.Equal(t, served, s.streams.Load())
	mend()
	assert.NoError(t, <-waited)
}

func TestSequencesOutliveIdleMode(t *testing.T) {
	t.Parallel()
	s := serve(t, 4)
	opts := append(mlbalancer.DialOptions(spread()), grpc.WithIdleTimeout(50*time.Millisecond))
	cc := s.clientOf(t, s.target, opts...)
	ready(t, cc, 4)
	home := mustTake(t, cc, step{"m", int64(1), true, false}).Endpoint
	for range 3 {
		require.Eventually(t, func() bool { return cc.GetState() == connectivity.Idle }, patience, time.Millisecond)
		d := mustTake(t, cc, step{"m", int64(1), false, false})
		assert.Equal(t, home, d.Endpoint)
		assert.Equal(t, picker.Sequence, d.Reason)
	}
}

func TestAServerLeavesWithItsSequences(t *testing.T) {
	t.Parallel()
	s := serve(t, 3)
	names := manual.NewBuilderWithScheme("sequences")
	endpoints := func(skip string) (state resolver.State) {
		for i := range 3 {
			if name := fmt.Sprintf("s%d", i); name != skip {
				state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: name}}})
			}
		}
		return state
	}
	names.InitialState(endpoints(""))
	cc := s.clientOf(t, "sequences:///x", append(mlbalancer.DialOptions(spread()), grpc.WithResolvers(names))...)
	ready(t, cc, 3)
	home := mustTake(t, cc, step{"m", int64(42), true, false}).Endpoint
	names.UpdateState(endpoints(home))
	served := s.streams.Load()
	for _, wait := range []bool{false, true} {
		_, err := take(t, cc, step{"m", int64(42), false, false}, grpc.WaitForReady(wait))
		require.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
		require.ErrorContains(t, err, fmt.Sprintf(`sequence 42 of model "m" is held by %s, which is no longer`, home))
	}
	assert.Equal(t, served, s.streams.Load())
}

func TestASequenceIsOverOnceItsEndIsAnswered(t *testing.T) {
	t.Parallel()
	s := serve(t, 2)
	config := &balancer.Config{Inference: balancer.StrategyConfig{Strategy: "p2c"}, Breaker: balancer.DefaultBreaker()}
	for _, tc := range []struct {
		outcome string
		over    bool
	}{{"caller-fault", true}, {"misplaced", true}, {"model-fault", true}, {"failure", false}, {"overload", false}} {
		config := *config
		breaker := *config.Breaker
		breaker.Codes = map[string]string{"DATA_LOSS": tc.outcome}
		config.Breaker = &breaker
		cc := s.clientOf(t, s.target, mlbalancer.DialOptions(mlbalancer.WithConfig(&config))...)
		ready(t, cc, 2)
		home := mustTake(t, cc, step{"fail ", int64(1), true, false}) // a model of another name
		require.NotEmpty(t, home.Endpoint)
		_, err := take(t, cc, step{"fail", int64(1), true, false})
		require.Equal(t, codes.DataLoss, status.Code(err))
		d, err := take(t, cc, step{"fail", int64(1), false, true})
		require.Equal(t, codes.DataLoss, status.Code(err))
		require.Equal(t, picker.Sequence, d.Reason)
		require.Equal(t, 1, d.Attempt, "never sent again")
		d, _ = take(t, cc, step{"fail", int64(1), false, false})
		assert.Equal(t, tc.over, d.Reason != picker.Sequence, tc.outcome)
	}
}

func TestAnOpenBreakerHoldsItsSequences(t *testing.T) {
	t.Parallel()
	s := serve(t, 3)
	breaker := balancer.DefaultBreaker()
	breaker.Codes, breaker.OpenFor = map[string]string{"DATA_LOSS": "failure"}, breaker.MaxOpenFor
	config := &balancer.Config{Inference: balancer.StrategyConfig{Strategy: "p2c"}, Breaker: breaker}
	cc := s.clientOf(t, s.target, mlbalancer.DialOptions(mlbalancer.WithConfig(config))...)
	ready(t, cc, 3)
	home, err := take(t, cc, step{"fail", "s", true, false})
	require.Equal(t, codes.DataLoss, status.Code(err))
	want := fmt.Sprintf(`sequence "s" of model "fail" is held by %s, whose breaker`, home.Endpoint)
	require.Eventually(t, func() bool {
		_, err = take(t, cc, step{"fail", "s", false, false})
		return status.Code(err) != codes.DataLoss
	}, patience, time.Millisecond)
	served := s.streams.Load()
	for range 10 {
		_, err = take(t, cc, step{"fail", "s", false, false})
		require.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
		require.ErrorContains(t, err, want)
	}
	assert.Equal(t, served, s.streams.Load(), "nothing reaches another server")
}

func TestManySequencesAtOnce(t *testing.T) {
	t.Parallel()
	s := serve(t, 4)
	cc := s.clientOf(t, s.target, mlbalancer.DialOptions(spread())...)
	ready(t, cc, 4)
	var running sync.WaitGroup
	for i := range 20 {
		running.Go(func() {
			var home string
			for n := range 30 {
				reply := &wrapperspb.StringValue{}
				err := cc.Invoke(deadline(t), modelInfer, step{"m", int64(i + 1), n == 0, n == 29}.message(), reply)
				if !assert.NoError(t, err) {
					return
				}
				if n == 0 {
					home = serverOf(reply)
				}
				assert.Equal(t, home, serverOf(reply))
			}
		})
	}
	running.Wait()
}

// The requests of a stream are not told apart: they all go where the stream goes.
func TestAStreamOfASequenceStaysOnOneServer(t *testing.T) {
	t.Parallel()
	s := serve(t, 4)
	cc := s.clientOf(t, s.target, mlbalancer.DialOptions(spread())...)
	ready(t, cc, 4)
	ctx, cancel := context.WithCancel(deadline(t))
	defer cancel()
	stream, err := cc.NewStream(ctx, bidi, modelStreamInfer)
	require.NoError(t, err)
	homes := map[string]bool{}
	for i := range 30 {
		require.NoError(t, stream.SendMsg(step{"m", int64(1 + i%3), i < 3, false}.message()))
		reply := &wrapperspb.StringValue{}
		require.NoError(t, stream.RecvMsg(reply))
		homes[serverOf(reply)] = true
	}
	assert.Len(t, homes, 1)
}

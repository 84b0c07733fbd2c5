package cases

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer/integration/rig"
)

// A server that says now this, now that must not be in and out each time (huggingface/dataset-viewer#3422).
func TestHLTH07(t *testing.T) {
	t.Parallel()
	eachChecked(t, byRing, testFlaps)
}

func testFlaps(t *testing.T, config string) {
	const ids, flips, period = 10_000, 200, 50 * time.Millisecond
	f, c := fleetOf(t, 6, config)
	b := f.Backends[0]
	home := rig.ModelAware(t, byRing, f.Endpoints()...).Map(rig.Models(ids))
	id := func(i int) int { return i * 37 % ids }
	load := atRate(t, 300, func(i int) rig.Result { return c.Send(rig.Model(id(i)), limit) })
	rig.For(2*time.Second, tick, func(int) {})

	began, changes, is := time.Now(), 0, "ready"
	for i := range flips {
		b.Serving(i%2 == 1)
		rig.For(period, 5*time.Millisecond, func(int) {
			if now := c.Endpoint(b.Addr()).Health.Server; now != is {
				changes++
				is = now
			}
		})
	}
	b.Serving(true)
	steady := time.Now()
	rig.For(6*time.Second, tick, func(int) {})
	rs := load.stop()

	assert.Empty(t, rs.Failed(), "%v", rs)
	t.Logf("%d changes in %v", changes, steady.Sub(began))
	assert.Positive(t, changes)
	assert.LessOrEqual(t, changes, 10)
	others, moved := 0, 0
	for _, r := range rs.Between(began, steady) {
		if at := home[id(r.Index)]; at != b.Addr() {
			others++
			if r.Backend+":1" != at {
				moved++
			}
		}
	}
	assert.LessOrEqual(t, float64(moved), .01*float64(others), "calls for ids of other servers that went elsewhere")
	after := rs.Between(steady.Add(3*time.Second), time.Now())
	own := 0
	for _, r := range after {
		if home[id(r.Index)] == b.Addr() {
			own++
		}
	}
	assert.InDelta(t, own, after.By()[b.Name], .05*float64(own), "%s has its share again", b.Name)
}

// An endpoint that was removed gets no calls, whatever it says of its health (envoyproxy/envoy#11527).
func TestHLTH10(t *testing.T) {
	t.Parallel()
	for _, strategy := range strategies {
		t.Run(strategy, func(t *testing.T) {
			eachChecked(t, fmt.Sprintf(`{"inference":{"strategy":%q}}`, strategy), testRemoved)
		})
	}
}

const slowKey = "slow"

func testRemoved(t *testing.T, config string) {
	f := rig.New(t, 4)
	for _, b := range f.Backends {
		b.Answers(rig.GPUStats, rig.Says(rig.Hangs, ready()))
		b.Answers(rig.LoadReports, rig.Hangs)
		b.Handle(func(ctx context.Context, _ string) error {
			if rig.Header(ctx, slowKey) != "" {
				return rig.Wait(ctx, 2*time.Second)
			}
			return rig.Wait(ctx, 2*time.Millisecond)
		})
	}
	c := f.Client(rig.Setup{Config: config})
	c.Ready(4)
	b := f.Backends[0]
	load := atRate(t, 400, manyModels(c))
	pause(t.Context(), time.Second)
	require.GreaterOrEqual(t, b.Asking(), 3, "the watch and two streams of reports")
	var slow sync.WaitGroup
	for i := 0; b.Running() < 5; i++ {
		slow.Go(func() {
			r := rig.Timed(limit, func(ctx context.Context) (string, error) {
				return c.Call(metadata.AppendToOutgoingContext(ctx, slowKey, "yes"), rig.Model(i))
			})
			assert.NoError(t, r.Err)
		})
		pause(t.Context(), time.Millisecond)
	}
	c.Resolve(f.Endpoints()[1:]...)
	removed := time.Now()
	pause(t.Context(), 200*time.Millisecond)
	before, asked := b.Started(), b.AskedAtAll()
	require.Equal(t, 1, b.Open())
	require.Positive(t, b.Running())
	rig.Eventually(t, func() bool { return b.Running() == 0 }, limit, "the calls are done")
	require.GreaterOrEqual(t, time.Since(removed), 1500*time.Millisecond, "the calls were not cut off")
	rig.Eventually(t, func() bool { return b.Asking() == 0 && b.Open() == 0 }, time.Second, "streams and connection are closed")
	pause(t.Context(), 2*time.Second)
	slow.Wait()
	rs := load.stop()
	assert.Empty(t, rs.Failed(), "%v", rs)
	assert.Equal(t, before, b.Started(), "calls to an endpoint that was removed")
	assert.Equal(t, asked, b.AskedAtAll(), "questions to an endpoint that was removed")
	assert.Len(t, c.Snapshot().Endpoints, 3)
}

// Calls must not go to a server that has not loaded its model yet (SeldonIO/MLServer#1134). Plain ones fail at once.
func TestHLTH11(t *testing.T) {
	t.Parallel()
	for _, strategy := range strategies {
		t.Run(strategy, func(t *testing.T) {
			eachChecked(t, fmt.Sprintf(`{"inference":{"strategy":%q}}`, strategy), testColdStart)
		})
	}
}

func testColdStart(t *testing.T, config string) {
	f := rig.New(t, 1)
	b := f.Backends[0]
	b.Serving(false)
	var early rig.Visits
	b.Handle(early.Around(fails(codes.FailedPrecondition, "the model is not loaded")))
	c := f.Client(rig.Setup{Config: config})
	began := time.Now()
	load := run(t, func(context.Context) rig.Results {
		return rig.Closed(100, 100, func(i int) rig.Result { return c.Send("m", limit, grpc.WaitForReady(i%2 == 0)) })
	})
	pause(t.Context(), 2*time.Second)
	require.Zero(t, early.Len(), "calls before it serves")
	b.Takes(time.Millisecond)
	b.Serving(true)
	rs := <-load.results
	for _, r := range rs {
		if r.Index%2 == 0 {
			require.NoError(t, r.Err)
			done := r.Sent.Add(r.Took).Sub(began)
			require.True(t, 2*time.Second <= done && done <= 3*time.Second, "done after %v", done)
			continue
		}
		require.Equal(t, codes.Unavailable, status.Code(r.Err), "%v", r.Err)
		require.Less(t, r.Took, time.Second)
	}
	require.Equal(t, 50, b.Started())
	assert.NoError(t, c.Send("m", limit).Err)
}

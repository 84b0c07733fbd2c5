package server_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mlbalancer/mlbalancer/health/gpustats/server"
	gpb "github.com/mlbalancer/mlbalancer/proto/mlbalancer/gpustats/v1"
)

// What was said without a time holds until the next update: it is moved on, and the caller's message is left alone.
func TestReportIsMovedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := busy(1)
		r.LaneFreeIn = durationpb.New(3 * time.Second)
		r.Victim = &gpb.Victim{
			Kind: gpb.Victim_KIND_IDLE.Enum(), Model: proto.String("v"), LastUsedAge: durationpb.New(time.Minute),
		}
		r.Models = []*gpb.Model{
			model("b", "", gpb.ModelState_MODEL_STATE_LOADING), model("a", "", gpb.ModelState_MODEL_STATE_READY),
			model("c", "", gpb.ModelState_MODEL_STATE_LOADING),
		}
		r.Models[0].LoadEta = durationpb.New(5 * time.Second)
		r.Models[2].LoadEta = durationpb.New(time.Second)
		before := proto.CloneOf(r)

		s := server.New(server.Options{})
		s.Update(r)
		l := listen(t, serve(t, s), &gpb.WatchRequest{Interval: durationpb.New(2 * time.Second)})
		first := l.take()[0]
		pause(2 * time.Second)
		then := l.take()[0]
		assert.Equal(t, time.Now().UTC(), then.SampledAt.AsTime())
		assert.Equal(t, time.Second, then.LaneFreeIn.AsDuration())
		assert.Equal(t, 62*time.Second, then.Victim.LastUsedAge.AsDuration())
		assert.Equal(t, "v", then.Victim.GetModel())
		names := make([]string, 0, 3)
		for _, m := range then.Models {
			names = append(names, m.GetName())
		}
		assert.Equal(t, []string{"a", "b", "c"}, names, "models are sorted by name")
		assert.Nil(t, then.Models[0].LoadEta)
		assert.Equal(t, 3*time.Second, then.Models[1].LoadEta.AsDuration())
		assert.Zero(t, then.Models[2].LoadEta.AsDuration())
		assert.NotNil(t, then.Models[2].LoadEta)

		assert.Equal(t, 3*time.Second, first.LaneFreeIn.AsDuration())
		assert.True(t, proto.Equal(before, r), "the message of the caller is as it was")
	})
}

// What was said with a time stays as it is.
func TestReportWithATimeStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := busy(1)
		r.SampledAt = timestamppb.New(time.Now().Add(-time.Second))
		r.LaneFreeIn = durationpb.New(3 * time.Second)
		s := server.New(server.Options{})
		s.Update(r)
		l := listen(t, serve(t, s), &gpb.WatchRequest{})
		pause(2500 * time.Millisecond)
		got := l.take()
		require.Len(t, got, 3)
		for _, g := range got {
			assert.Equal(t, r.SampledAt.AsTime(), g.SampledAt.AsTime())
			assert.Equal(t, 3*time.Second, g.LaneFreeIn.AsDuration())
			assert.Equal(t, got[0].GetSequence(), g.GetSequence(), "it is the same report")
		}
	})
}

// A function is asked when a report is due, however often it is said that something has changed, and may take the lock under
// which that is said.
func TestUpdateFunc(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var inFlight, asked int64
		sample := func() *gpb.NodeReport {
			mu.Lock()
			defer mu.Unlock()
			asked++
			return busy(inFlight)
		}
		s := server.New(server.Options{Budget: 50})
		c := serve(t, s)
		l := listen(t, c, &gpb.WatchRequest{})
		l.take()
		for range 5000 {
			mu.Lock()
			inFlight++
			s.UpdateFunc(sample)
			mu.Unlock()
			time.Sleep(time.Millisecond)
		}
		got := l.take()
		assert.InDelta(t, 250, len(got), 5)
		assert.LessOrEqual(t, asked, int64(2*len(got)+2))

		mu.Lock()
		inFlight = 7
		mu.Unlock()
		pause(time.Second)
		got = l.take()
		require.NotEmpty(t, got)
		assert.EqualValues(t, 7, got[len(got)-1].GetInFlight(), "it is asked again when the interval is over")
	})
}

// A change that is too small is looked at once.
func TestUpdateFuncIsNotAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		s := server.New(server.Options{})
		s.Update(busy(100))
		l := listen(t, serve(t, s), &gpb.WatchRequest{Interval: durationpb.New(time.Minute), MinChange: proto.Float64(.1)})
		l.take()
		pause(time.Second)
		s.UpdateFunc(func() *gpb.NodeReport { asked++; return busy(101) })
		pause(30 * time.Second)
		assert.Empty(t, l.take())
		assert.Equal(t, 1, asked)
	})
}

func TestFilter(t *testing.T) {
	r := busy(4)
	r.ModelsComplete = proto.Bool(true)
	r.Gpus = []*gpb.GPU{{Uuid: proto.String("g")}}
	r.Models = []*gpb.Model{
		model("a", "", gpb.ModelState_MODEL_STATE_READY), model("b", "1", gpb.ModelState_MODEL_STATE_READY),
		model("b", "2", gpb.ModelState_MODEL_STATE_READY), model("c", "", gpb.ModelState_MODEL_STATE_READY),
	}
	for name, tc := range map[string]struct {
		models []string
		want   []int
	}{
		"none":         {nil, []int{0, 1, 2, 3}},
		"by name":      {[]string{"b", "c", "x"}, []int{1, 2, 3}},
		"by version":   {[]string{"b:2"}, []int{2}},
		"none of them": {[]string{"x"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := server.New(server.Options{})
				s.Update(r)
				c := serve(t, s)
				want := proto.CloneOf(r)
				want.ModelsComplete = proto.Bool(tc.models == nil)
				want.Models = nil
				for _, i := range tc.want {
					want.Models = append(want.Models, r.Models[i])
				}
				check := func(got *gpb.NodeReport) {
					want.SampledAt, want.Sequence = got.SampledAt, got.Sequence
					assert.True(t, proto.Equal(want, got), "got %v", got)
				}
				check(listen(t, c, &gpb.WatchRequest{Models: tc.models}).take()[0].NodeReport)
				got, err := c.Get(context.Background(), &gpb.GetRequest{Models: tc.models})
				require.NoError(t, err)
				check(got)
				_, err = c.Get(context.Background(), &gpb.GetRequest{Models: make([]string, 2000)})
				assert.Equal(t, codes.InvalidArgument, status.Code(err))
			})
		})
	}
}

// A watcher is not told of changes of models that it did not ask for.
func TestFilteredChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		with := func(a, b gpb.ModelState) *gpb.NodeReport {
			return &gpb.NodeReport{Models: []*gpb.Model{model("a", "", a), model("b", "", b)}}
		}
		const ready, loading = gpb.ModelState_MODEL_STATE_READY, gpb.ModelState_MODEL_STATE_LOADING
		s := server.New(server.Options{})
		s.Update(with(loading, loading))
		l := listen(t, serve(t, s), &gpb.WatchRequest{Models: []string{"a"}, Interval: durationpb.New(time.Minute)})
		l.take()
		pause(time.Second)
		s.Update(with(loading, ready))
		pause(time.Second)
		assert.Empty(t, l.take())
		s.Update(with(ready, ready))
		pause(time.Second)
		assert.Len(t, l.take(), 1)
	})
}

// A report that cannot be encoded ends the watch with an error that says so.
func TestReportThatCannotBeEncoded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := server.New(server.Options{})
		s.Update(&gpb.NodeReport{Models: []*gpb.Model{model("\xff", "", gpb.ModelState_MODEL_STATE_READY)}})
		err := listen(t, serve(t, s), &gpb.WatchRequest{}).end()
		assert.Equal(t, codes.Internal, status.Code(err))
		assert.ErrorContains(t, err, "UTF-8")
	})
}

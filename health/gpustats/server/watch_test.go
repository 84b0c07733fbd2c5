package server_test

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/mlbalancer/mlbalancer/health/gpustats/server"
	gpb "github.com/mlbalancer/mlbalancer/proto/mlbalancer/gpustats/v1"
)

func TestWatchReportsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := server.New(server.Options{})
		c := serve(t, s)
		l := listen(t, c, &gpb.WatchRequest{})
		first := l.take()
		require.Len(t, first, 1)
		assert.Nil(t, first[0].State, "nothing is known before the first update")
		assert.Equal(t, time.Now().UTC(), first[0].SampledAt.AsTime())

		pause(100 * time.Millisecond)
		s.Update(busy(3))
		second := l.take()
		require.Len(t, second, 1, "a change is reported at once while there is budget")
		assert.EqualValues(t, 3, second[0].GetInFlight())
		assert.Equal(t, time.Now().UTC(), second[0].SampledAt.AsTime())
		assert.Greater(t, second[0].GetSequence(), first[0].GetSequence())

		got, err := c.Get(context.Background(), &gpb.GetRequest{})
		require.NoError(t, err)
		assert.EqualValues(t, 3, got.GetInFlight())
		assert.Equal(t, second[0].GetSequence(), got.GetSequence())
	})
}

// A watcher gets one report per interval when nothing changes, and the interval has bounds.
func TestWatchInterval(t *testing.T) {
	for name, tc := range map[string]struct {
		asked *durationpb.Duration
		want  time.Duration
	}{
		"none":      {nil, time.Second},
		"zero":      {durationpb.New(0), time.Second},
		"negative":  {durationpb.New(-time.Second), time.Second},
		"too short": {durationpb.New(time.Millisecond), 10 * time.Millisecond},
		"own":       {durationpb.New(250 * time.Millisecond), 250 * time.Millisecond},
		"too long":  {durationpb.New(time.Hour), time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := server.New(server.Options{})
				s.Update(busy(1))
				l := listen(t, serve(t, s), &gpb.WatchRequest{Interval: tc.asked})
				start := time.Now()
				pause(3*tc.want + tc.want/2)
				got := l.take()
				require.Len(t, got, 4)
				for i, r := range got {
					assert.Equal(t, time.Duration(i)*tc.want, r.at.Sub(start))
					assert.Equal(t, r.at.UTC(), r.SampledAt.AsTime(), "what holds until the next update holds now")
				}
			})
		})
	}
}

// All watchers together get Budget reports per second of a server that changes all the time, evenly and never two at once, and
// the last one that each gets is the newest.
func TestWatchBudget(t *testing.T) {
	for name, tc := range map[string]struct {
		budget   float64
		watchers int
	}{
		"one":       {200, 1},
		"some":      {200, 8},
		"many":      {100, 100},
		"by itself": {0, 20},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const span = 10 * time.Second
				s := server.New(server.Options{Budget: tc.budget})
				c := serve(t, s)
				watchers := make([]*listener, tc.watchers)
				for i := range watchers {
					watchers[i] = listen(t, c, &gpb.WatchRequest{Interval: durationpb.New(time.Minute)})
					watchers[i].take()
				}
				pause(30 * time.Second)
				for i := range int64(span / time.Millisecond) {
					before := time.Now()
					s.Update(busy(i))
					assert.Equal(t, before, time.Now(), "an update waits for nobody")
					time.Sleep(time.Millisecond)
				}
				budget := cmp.Or(tc.budget, server.DefaultBudget)
				share := span.Seconds() * budget / float64(tc.watchers)
				var all []time.Time
				newest := make([]int64, len(watchers))
				for i, l := range watchers {
					got := l.take()
					assert.InDelta(t, share, float64(len(got)), 1+share/5)
					newest[i] = got[len(got)-1].GetInFlight()
					for _, r := range got {
						all = append(all, r.at)
					}
				}
				assert.LessOrEqual(t, float64(len(all)), span.Seconds()*budget+1)
				slices.SortFunc(all, time.Time.Compare)
				for i := range all[1:] {
					if gap := all[i+1].Sub(all[i]).Seconds(); gap < .99/budget {
						require.Failf(t, "two reports at once", "%v apart", gap)
					}
				}
				pause(time.Minute)
				for i, l := range watchers {
					for _, r := range l.take() {
						newest[i] = r.GetInFlight()
					}
					assert.EqualValues(t, span/time.Millisecond-1, newest[i])
				}
			})
		})
	}
}

// What some watchers do not need of the budget goes to nobody else: what one gets does not depend on what others ask for.
func TestWatchShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := server.New(server.Options{Budget: 80})
		c := serve(t, s)
		s.Update(busy(1000))
		for range 7 {
			listen(t, c, &gpb.WatchRequest{Interval: durationpb.New(time.Minute), MinChange: proto.Float64(1)})
		}
		l := listen(t, c, &gpb.WatchRequest{Interval: durationpb.New(time.Minute)})
		l.take()
		for i := range int64(5000) {
			s.Update(busy(1000 + i))
			time.Sleep(time.Millisecond)
		}
		assert.InDelta(t, 50, len(l.take()), 2)
	})
}

func TestWatchMinChange(t *testing.T) {
	loading := func(eta time.Duration) *gpb.NodeReport {
		r := busy(100)
		r.Models = []*gpb.Model{model("m", "", gpb.ModelState_MODEL_STATE_LOADING)}
		r.Models[0].LoadEta = durationpb.New(eta)
		return r
	}
	for name, tc := range map[string]struct {
		minChange float64
		change    func(*gpb.NodeReport)
		atOnce    bool
	}{
		"nothing":          {0, func(*gpb.NodeReport) {}, false},
		"less":             {.1, func(r *gpb.NodeReport) { r.InFlight = proto.Int64(110) }, false},
		"more":             {.1, func(r *gpb.NodeReport) { r.InFlight = proto.Int64(112) }, true},
		"any":              {0, func(r *gpb.NodeReport) { r.InFlight = proto.Int64(101) }, true},
		"no number":        {1, func(r *gpb.NodeReport) { r.InFlight = nil }, true},
		"a load that lags": {.1, func(r *gpb.NodeReport) { r.Models[0].LoadEta = durationpb.New(5 * time.Second) }, true},
		"a state":          {1, func(r *gpb.NodeReport) { r.State = gpb.ServerState_SERVER_STATE_DRAINING.Enum() }, true},
		"no model":         {1, func(r *gpb.NodeReport) { r.Models = nil }, true},
		"a model ready":    {1, func(r *gpb.NodeReport) { r.Models[0].State = gpb.ModelState_MODEL_STATE_READY.Enum() }, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := server.New(server.Options{})
				s.Update(loading(5 * time.Second))
				l := listen(t, serve(t, s), &gpb.WatchRequest{
					Interval: durationpb.New(10 * time.Second), MinChange: proto.Float64(tc.minChange),
				})
				require.Len(t, l.take(), 1)
				pause(time.Second)
				next := loading(4 * time.Second)
				tc.change(next)
				s.Update(next)
				got := l.take()
				assert.Equal(t, tc.atOnce, len(got) == 1)
				if len(got) == 0 {
					pause(9 * time.Second)
					got = l.take()
				}
				require.Len(t, got, 1, "what is too little comes when the interval is over")
				assert.Equal(t, next.GetInFlight(), got[0].GetInFlight())
			})
		})
	}
}

// Small changes add up: what counts is the difference to what the watcher knows.
func TestWatchMinChangeAddsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := server.New(server.Options{})
		s.Update(busy(100))
		l := listen(t, serve(t, s), &gpb.WatchRequest{Interval: durationpb.New(time.Minute), MinChange: proto.Float64(.1)})
		l.take()
		var got []int64
		for i := int64(101); i <= 130; i++ {
			pause(100 * time.Millisecond)
			s.Update(busy(i))
			for _, r := range l.take() {
				got = append(got, r.GetInFlight())
			}
		}
		assert.Equal(t, []int64{112, 125}, got)
	})
}

func TestWatchRefuses(t *testing.T) {
	names := make([]string, 1025)
	for name, tc := range map[string]struct {
		req  *gpb.WatchRequest
		says string
	}{
		"a negative min_change": {&gpb.WatchRequest{MinChange: proto.Float64(-1)}, "min_change is -1, want a number from 0 to 1"},
		"a large min_change":    {&gpb.WatchRequest{MinChange: proto.Float64(1.5)}, "min_change is 1.5"},
		"no number":             {&gpb.WatchRequest{MinChange: proto.Float64(math.NaN())}, "min_change is NaN"},
		"many names":            {&gpb.WatchRequest{Models: names}, "models has 1025 names, want at most 1024"},
		"long names":            {&gpb.WatchRequest{Models: []string{strings.Repeat("n", 7e4)}}, "models has 70000 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				err := listen(t, serve(t, server.New(server.Options{})), tc.req).end()
				assert.Equal(t, codes.InvalidArgument, status.Code(err))
				assert.ErrorContains(t, err, tc.says)
			})
		})
	}
}

func TestWatchersAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serve(t, server.New(server.Options{MaxWatchers: 2}))
		first := listen(t, c, &gpb.WatchRequest{})
		listen(t, c, &gpb.WatchRequest{})
		err := listen(t, c, &gpb.WatchRequest{}).end()
		assert.Equal(t, codes.ResourceExhausted, status.Code(err))
		assert.ErrorContains(t, err, "at most 2")

		first.cancel()
		pause(time.Millisecond)
		assert.Len(t, listen(t, c, &gpb.WatchRequest{}).take(), 1, "a place is free again")
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := server.New(server.Options{})
		c := serve(t, s)
		l := listen(t, c, &gpb.WatchRequest{})
		s.Close()
		s.Close()
		assert.Equal(t, codes.Unavailable, status.Code(l.end()))
		late := listen(t, c, &gpb.WatchRequest{})
		assert.Equal(t, codes.Unavailable, status.Code(late.end()))
		assert.Empty(t, late.take())
		s.Update(busy(1))
		got, err := c.Get(context.Background(), &gpb.GetRequest{})
		require.NoError(t, err)
		assert.EqualValues(t, 1, got.GetInFlight())
	})
}

// A watcher that reads nothing holds nobody up and has nothing kept for it: it is sent what fits into its window, and the
// newest when it reads on.
func TestWatcherThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sends atomic.Int64
		s := server.New(server.Options{})
		c := serve(t, s, grpc.StreamInterceptor(
			func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
				if sends.Add(1) == 1 {
					sends.Store(0)
					stream = counted{stream, &sends}
				}
				return handler(srv, stream)
			}))
		big := func(i int64) *gpb.NodeReport {
			r := busy(i)
			for n := range 100 {
				r.Models = append(r.Models, model(fmt.Sprintf("a model by number %03d", n), "", gpb.ModelState_MODEL_STATE_READY))
			}
			return r
		}
		s.Update(big(0))
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		stuck, err := c.Watch(ctx, &gpb.WatchRequest{})
		require.NoError(t, err)
		synctest.Wait()
		well := listen(t, c, &gpb.WatchRequest{})

		for i := range int64(5000) {
			s.Update(big(i))
			time.Sleep(time.Millisecond)
		}
		pause(time.Second)
		got := well.take()
		assert.Greater(t, len(got), 400, "half of the budget, for 5 s")
		assert.EqualValues(t, 4999, got[len(got)-1].GetInFlight())
		assert.Less(t, sends.Load(), int64(60), "what fits into a window of 64 KiB")

		s.Update(big(5000))
		newest := int64(-1)
		for range sends.Load() + 2 {
			r, err := stuck.Recv()
			require.NoError(t, err)
			newest = r.GetInFlight()
		}
		assert.EqualValues(t, 5000, newest)
	})
}

type counted struct {
	grpc.ServerStream
	sends *atomic.Int64
}

func (c counted) SendMsg(m any) error {
	c.sends.Add(1)
	return c.ServerStream.SendMsg(m)
}

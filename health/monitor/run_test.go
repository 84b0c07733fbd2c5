package monitor

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer/health"
	"github.com/mlbalancer/mlbalancer/health/monitor/monitortest"
)

// fake is a source, and counts how often it is asked.
type fake struct {
	asked int
	watch func(ctx context.Context, report func(*health.Report)) error
}

func (f *fake) Name() string { return "fake" }

func (f *fake) Watch(ctx context.Context, _ grpc.ClientConnInterface, _ *Options, report func(*health.Report)) error {
	f.asked++
	return f.watch(ctx, report)
}

// inBubble runs a test, beside others, in time of its own.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Parallel()
	synctest.Test(t, test)
}

// ask runs a source for some time, and returns what it said and whether run returned by itself.
func ask(t *testing.T, f *fake, sink Sink, d time.Duration) (returned bool) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	a := &asker{source: f, out: outbox{sink: sink}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.run(ctx)
	}()
	time.Sleep(d)
	synctest.Wait()
	select {
	case <-done:
		return true
	default:
	}
	cancel()
	<-done
	return false
}

var ready = health.Report{Server: health.ServerReady}

func TestWhatFollowsAWatch(t *testing.T) {
	t.Parallel()
	broken, polled := errors.New("broken"), health.Report{Server: health.ServerReady, Interval: time.Second}
	missing := status.Error(codes.Unimplemented, "")
	refused, wrong := status.Error(codes.PermissionDenied, ""), status.Error(codes.Unauthenticated, "")
	restricted := status.Error(codes.Unavailable, "This protocol is restricted, expecting header 'triton-grpc-protocol-key'")
	for name, c := range map[string]struct {
		say              *health.Report
		err              error
		asked, withdrawn int // in 87 s
		silences         int
		returns          bool
		inThreeMinutes   int
	}{
		"nil":                       {silences: 1, asked: 1, returns: true, inThreeMinutes: 1},
		"unimplemented":             {err: missing, silences: 1, asked: 1, returns: true, inThreeMinutes: 1},
		"word, then nil":            {say: &ready, withdrawn: 1, asked: 1, returns: true, inThreeMinutes: 1},
		"polled, then nil":          {say: &polled, withdrawn: 1, asked: 1, returns: true, inThreeMinutes: 1},
		"denied":                    {err: refused, silences: 1, asked: 1, inThreeMinutes: 2},
		"unauthenticated":           {err: wrong, silences: 1, asked: 1, inThreeMinutes: 2},
		"restricted":                {err: restricted, silences: 1, asked: 1, inThreeMinutes: 2},
		"broken":                    {err: broken, silences: 1, asked: 9},
		"word, then broken":         {say: &ready, err: broken, withdrawn: 9, asked: 9},
		"polled, then broken":       {say: &polled, err: broken, asked: 9},
		"word, then denied":         {say: &ready, err: refused, withdrawn: 1, asked: 1, inThreeMinutes: 2},
		"polled, then unavailable":  {say: &polled, err: status.Error(codes.Unavailable, "restricted"), asked: 9},
		"polled, then unauthorised": {say: &polled, err: wrong, asked: 1, inThreeMinutes: 2},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				watch := func(ctx context.Context, report func(*health.Report)) error {
					assert.NoError(t, ctx.Err())
					if c.say != nil {
						report(c.say)
					}
					return c.err
				}
				var r monitortest.Record
				f := &fake{watch: watch}
				// After 0, 1, 2.6, 5.2, 9.3, 15.8, 26.3, 43.1, 69.9 and 112.9 s, give or take a fifth.
				assert.Equal(t, c.returns, ask(t, f, &r, 87*time.Second))
				assert.Equal(t, c.asked, f.asked)
				assert.Equal(t, c.silences, r.Now().Silences)
				assert.Equal(t, c.withdrawn, r.Now().Withdrawn)
				if c.say != nil {
					assert.Equal(t, c.asked, r.Now().Reports)
				} else {
					assert.Zero(t, r.Now().Reports)
				}
				if c.inThreeMinutes > 0 {
					f := &fake{watch: watch}
					ask(t, f, &monitortest.Record{}, 3*time.Minute)
					assert.Equal(t, c.inThreeMinutes, f.asked)
				}
			})
		})
	}
}

func TestAWatchThatLastedMakesTheDelayShortAgain(t *testing.T) {
	for lasts, want := range map[time.Duration]int{
		9 * time.Second:  16, // delays grow to two minutes
		11 * time.Second: 83, // they stay at a second
	} {
		t.Run(lasts.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				f := &fake{watch: func(ctx context.Context, report func(*health.Report)) error {
					report(&ready)
					Sleep(ctx, lasts)
					return errors.New("broken")
				}}
				ask(t, f, &monitortest.Record{}, 1000*time.Second)
				require.InDelta(t, want, f.asked, 3)
			})
		})
	}
}

func TestASourceThatHangsIsAskedOnceAndSaysNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var r monitortest.Record
		f := &fake{watch: func(ctx context.Context, _ func(*health.Report)) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		assert.False(t, ask(t, f, &r, time.Hour))
		assert.Equal(t, 1, f.asked)
		assert.Equal(t, monitortest.Said{}, r.Now(), "the end of ctx says nothing either")
	})
}

func TestNothingIsSaidAfterRunHasReturned(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var r monitortest.Record
		f := &fake{watch: func(ctx context.Context, report func(*health.Report)) error {
			for Sleep(ctx, time.Millisecond) {
				report(&ready)
			}
			return ctx.Err()
		}}
		ask(t, f, &r, 110*time.Millisecond)
		before := r.Now()
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, before, r.Now())
		assert.InDelta(t, 6, before.Reports, 1)
	})
}

func TestReportsArePutTogether(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var r monitortest.Record
		f := &fake{watch: func(ctx context.Context, report func(*health.Report)) error {
			rep := health.Report{Models: []health.Model{{}}} // used again for each
			for i := range 100 {
				rep.Server = health.ServerReady
				rep.Models[0] = health.Model{Name: strconv.Itoa(i % 20), State: health.ModelReady, Service: time.Duration(i)}
				report(&rep)
				rep.Models[0].Name = "overwritten"
				if i%2 == 0 {
					Sleep(ctx, 10*time.Millisecond)
				}
			}
			Sleep(ctx, time.Second)
			rep.Models = rep.Models[:0]
			rep.Server = health.ServerNotReady
			report(&rep)
			<-ctx.Done()
			return ctx.Err()
		}}
		start := time.Now()
		ask(t, f, &r, 3*time.Second)
		said := r.Now()
		assert.InDelta(t, 1+25+1, said.Reports, 1, "half a second's, at 50 per second")
		assert.Equal(t, 1500*time.Millisecond, said.Last.Sub(start), "what comes after a pause is not held up")
		assert.Equal(t, health.ServerNotReady, said.Report.Server)
		require.Len(t, said.Models, 20)
		for i := range 20 {
			assert.Equal(t, time.Duration(80+i), said.Models[strconv.Itoa(i)].Service, "the last word on each")
		}
	})
}

func TestTheLastWordBeforeAFailureIsNotLost(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var r monitortest.Record
		f := &fake{watch: func(_ context.Context, report func(*health.Report)) error {
			report(&health.Report{Server: health.ServerReady, Interval: time.Second})
			report(&health.Report{Server: health.ServerDraining, Interval: time.Second})
			return errors.New("broken")
		}}
		ask(t, f, &r, time.Millisecond)
		assert.Equal(t, health.ServerDraining, r.Now().Report.Server)
		assert.Equal(t, 2, r.Now().Reports)
	})
}

func TestAFloodIsCutOff(t *testing.T) {
	for name, rep := range map[string]health.Report{
		"of reports": ready,
		"of models":  {Models: make([]health.Model, 500)},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				var r monitortest.Record
				calls := 0
				f := &fake{watch: func(ctx context.Context, report func(*health.Report)) error {
					next := 0
					for ctx.Err() == nil {
						for i := range rep.Models {
							next++
							rep.Models[i].Name = strconv.Itoa(next)
						}
						calls++
						report(&rep)
					}
					return nil // which would mean that it has nothing to say
				}}
				assert.False(t, ask(t, f, &r, 87*time.Second))
				assert.Equal(t, 9, f.asked)
				assert.LessOrEqual(t, calls, f.asked*(maxReports+1))
				assert.Equal(t, f.asked, r.Now().Withdrawn)
				assert.LessOrEqual(t, r.Now().Reports, 2*f.asked)
			})
		})
	}
}

func TestRunReturnsOnceThereIsNothingToLearn(t *testing.T) {
	t.Parallel()
	Run(t.Context(), nil, nil, &Options{Interval: time.Second}, nil)
}

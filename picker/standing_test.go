package picker

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mlbalancer/mlbalancer/breaker"
	"github.com/mlbalancer/mlbalancer/health"
)

// ward is an endpoint with a guard, at a time of the test's making.
type ward struct {
	g   *Guard
	e   *Endpoint
	now int64
}

func newWard() *ward {
	g := NewGuard(breaker.DefaultConfig(), rand.New(rand.NewPCG(1, 1)).Uint64)
	e := NewEndpoint("a")
	w := &ward{g, e, int64(time.Hour)}
	e.Reconnected(w.now)
	return w
}

func (w *ward) after(d time.Duration) { w.now += int64(d); w.g.examine(w.e, w.now, 0) }

func (w *ward) says(source int, r health.Report) { w.g.Report(w.e, source, w.now, &r) }

// takes reports whether the endpoint may be sent a call for a model.
func (w *ward) takes(model string) bool { return w.fit(model, false) }

func (w *ward) fit(model string, panic bool) bool {
	q := Query{Request: Request{ModelID: model}, Key: Key(model), Now: w.now}
	return w.e.fit(&q, panic)
}

func models(state health.ModelState, names ...string) (ms []health.Model) {
	for _, n := range names {
		ms = append(ms, health.Model{Name: n, State: state})
	}
	return ms
}

func TestStandingFollowsReports(t *testing.T) {
	t.Parallel()
	ready := health.Report{Server: health.ServerReady}
	refuses := health.Report{Server: health.ServerNotReady}
	has := health.Report{Models: models(health.ModelReady, "a"), Complete: true, OnDemand: health.No}
	for _, c := range []struct {
		name    string
		said    []health.Report // by source
		a, b    bool            // whether it takes calls for the models a and b
		none    bool            // and for no model
		inPanic bool            // for b
	}{
		{"nothing is known", nil, true, true, true, true},
		{"ready", []health.Report{ready}, true, true, true, true},
		{"never ready", []health.Report{refuses}, false, false, false, false},
		{"not ready by one of two", []health.Report{refuses, ready}, false, false, false, true},
		{"draining", []health.Report{{Server: health.ServerDraining}}, false, false, false, true},
		{"has a, and says so of all it has", []health.Report{has}, true, false, true, false},
		{"not ready, but has a", []health.Report{refuses, has}, true, false, false, false},
		{"not ready, but has a, and may have others", []health.Report{refuses, {Models: models(health.ModelReady, "a")}}, true, false, false, true},
		{"ready, but not for b", []health.Report{ready, {Models: models(health.ModelUnavailable, "b")}}, true, false, true, false},
		{"one says yes, one no", []health.Report{has, {Models: models(health.ModelAbsent, "a")}}, false, false, true, false},
		{"loads on demand", []health.Report{{Models: models(health.ModelReady, "a"), Complete: true, OnDemand: health.Yes}}, true, true, true, true},
		{"b is loading", []health.Report{{Models: models(health.ModelLoading, "b"), OnDemand: health.No}}, true, false, true, false},
		{"b is loading on demand", []health.Report{{Models: models(health.ModelLoading, "b"), OnDemand: health.Yes}}, true, true, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWard()
			for i, r := range c.said {
				w.says(i, r)
			}
			assert.Equal(t, c.a, w.takes("a"), "a")
			assert.Equal(t, c.b, w.takes("b"), "b")
			assert.Equal(t, c.none, w.takes(""), "no model")
			assert.Equal(t, c.inPanic, w.fit("b", true), "b in panic")
			for i := range c.said {
				w.g.Withdraw(w.e, i, w.now)
			}
			w.after(3 * time.Second)
			assert.True(t, w.takes("a") && w.takes("b") && w.takes(""), "nothing is said any more")
		})
	}
}

func TestUpdatesGoWhereTheModelIsNot(t *testing.T) {
	t.Parallel()
	w := newWard()
	w.says(0, health.Report{Models: models(health.ModelAbsent, "a"), OnDemand: health.No})
	q := Query{Request: Request{ModelID: "a", Type: Update}, Key: Key("a"), Now: w.now}
	assert.True(t, w.e.fit(&q, false))
	assert.False(t, w.takes("a"))
}

func TestStaleReportsAreIgnored(t *testing.T) {
	t.Parallel()
	w := newWard()
	w.says(0, health.Report{Server: health.ServerReady})
	w.says(1, health.Report{Server: health.ServerNotReady, Interval: time.Second})
	assert.False(t, w.takes("a"))
	w.after(4900 * time.Millisecond)
	assert.False(t, w.takes("a"), "staleAfter is 5 s")
	w.after(200 * time.Millisecond)
	w.after(200 * time.Millisecond)
	assert.True(t, w.takes("a"))

	w.says(1, health.Report{Server: health.ServerNotReady, Interval: 4 * time.Second, Age: time.Second})
	w.after(10900 * time.Millisecond)
	assert.False(t, w.takes("a"), "three times the source's own interval is more")
	w.after(200 * time.Millisecond)
	w.after(400 * time.Millisecond)
	assert.True(t, w.takes("a"))
	h := w.e.Health()
	_, known := h.Said(1)
	assert.False(t, known)
}

func TestWhatAReportLeavesOutStands(t *testing.T) {
	t.Parallel()
	w := newWard()
	w.says(0, health.Report{Server: health.ServerNotReady})
	w.says(0, health.Report{Models: models(health.ModelReady, "a")})
	assert.False(t, w.takes("b"))
	w.says(0, health.Report{OnDemand: health.No, Models: models(health.ModelAbsent, "b")})
	w.says(0, health.Report{Server: health.ServerReady})
	assert.True(t, w.takes("a") && !w.takes("b"))
}

func TestReadyAgainOnlyWhenSteady(t *testing.T) {
	t.Parallel()
	w := newWard()
	w.says(0, health.Report{Server: health.ServerReady})
	changes, was := 0, true
	for range 100 {
		for _, s := range []health.ServerState{health.ServerNotReady, health.ServerReady} {
			w.says(0, health.Report{Server: s})
			for range 5 {
				w.after(10 * time.Millisecond)
				if is := w.takes("a"); is != was {
					changes, was = changes+1, is
				}
			}
		}
	}
	assert.LessOrEqual(t, changes, 10)
	for range 20 {
		w.after(100 * time.Millisecond)
	}
	assert.True(t, w.takes("a"))
}

func TestTheFirstWordIsTakenAtOnce(t *testing.T) {
	t.Parallel()
	w := newWard()
	w.says(0, health.Report{Server: health.ServerNotReady})
	assert.False(t, w.takes("a"))
	assert.False(t, w.fit("a", true), "not even in panic")
	w.says(0, health.Report{Server: health.ServerReady})
	assert.True(t, w.takes("a"))
}

func TestASourceThatStartsAnewReplacesItsWord(t *testing.T) {
	t.Parallel()
	w := newWard()
	w.says(0, health.Report{Server: health.ServerReady, Models: models(health.ModelUnavailable, "a")})
	w.says(0, health.Report{Server: health.ServerNotReady, Models: models(health.ModelReady, "b")})
	w.g.Anew(w.e, 0)
	assert.True(t, !w.takes("a") && w.takes("b") && !w.takes("c"), "as before")
	w.says(0, health.Report{Load: health.Load{Has: health.HasActive}})
	assert.True(t, !w.takes("a") && w.takes("b") && !w.takes("c"), "nothing was said of that")
	w.says(0, health.Report{Server: health.ServerNotReady})
	assert.False(t, w.takes("b"))
	assert.True(t, w.fit("a", true), "it has been ready, and no more is said of the model")
	w.says(0, health.Report{Models: models(health.ModelReady, "b")})
	assert.True(t, w.takes("b"))

	w.g.Anew(w.e, 0)
	w.g.Withdraw(w.e, 0, w.now)
	w.after(time.Second)
	assert.True(t, w.takes("a") && w.takes("c"))
}

// The verdict of what stands above is that an endpoint is ready wherever nothing is checked.
func TestAVerdictAloneMakesNoServerReadyThatSaysItIsNot(t *testing.T) {
	t.Parallel()
	w := newWard()
	w.g.Verdict(w.e, w.now, health.ServerReady)
	assert.True(t, w.takes("a"))
	w.says(0, health.Report{Server: health.ServerNotReady})
	assert.False(t, w.fit("a", true), "it has not been ready")
	w.g.Verdict(w.e, w.now, health.ServerNotReady)
	assert.False(t, w.fit("a", true))
	w.g.Verdict(w.e, w.now, health.ServerReady)
	w.says(0, health.Report{Server: health.ServerReady})
	assert.True(t, w.takes("a"))
	w.says(0, health.Report{Server: health.ServerNotReady})
	assert.True(t, !w.takes("a") && w.fit("a", true), "it has been ready")

	w = newWard()
	w.g.Verdict(w.e, w.now, health.ServerReady)
	w.g.Verdict(w.e, w.now, health.ServerNotReady)
	assert.True(t, !w.takes("a") && w.fit("a", true), "where nobody else speaks the verdict stands")
}

func TestAReconnectedServerStartsAnew(t *testing.T) {
	t.Parallel()
	w := newWard()
	w.says(0, health.Report{Server: health.ServerNotReady, Models: models(health.ModelUnavailable, "a"), Load: health.Load{Has: health.HasActive, Active: 3}})
	w.e.Reconnected(w.now)
	w.g.Unheard(w.e)
	assert.True(t, w.takes("a"))
	l, _ := w.e.Facts(w.now)
	assert.Zero(t, l)
	w.says(0, health.Report{Models: models(health.ModelReady, "b"), Complete: true, OnDemand: health.No})
	assert.False(t, w.takes("a"), "what was said before does not come back to life")
}

func TestCompleteReportsReplaceOneAnother(t *testing.T) {
	t.Parallel()
	w := newWard()
	has := func(names ...string) {
		w.says(0, health.Report{Models: models(health.ModelReady, names...), Complete: true, OnDemand: health.No})
	}
	has("a", "b")
	assert.True(t, w.takes("a") && w.takes("b"))
	has("b", "a")
	assert.True(t, w.takes("a") && w.takes("b"))
	has("b")
	assert.False(t, w.takes("a"))
	has()
	assert.False(t, w.takes("b"))
	has("a")
	assert.True(t, w.takes("a"))
}

func TestMoreModelsThanCanBeKept(t *testing.T) {
	t.Parallel()
	w := newWard()
	var names []string
	for i := range maxReported + 2000 {
		names = append(names, fmt.Sprint("m", i))
	}
	w.says(0, health.Report{Models: models(health.ModelReady, names...), Complete: true, OnDemand: health.No})
	for _, n := range names {
		require.True(t, w.takes(n), n)
	}
	kept := 0
	for range w.e.Models() {
		kept++
	}
	assert.LessOrEqual(t, kept, 2*maxReported)
	w.says(0, health.Report{Models: models(health.ModelReady, names[:1000]...), Complete: true, OnDemand: health.No})
	assert.True(t, w.takes("m999"))
	assert.False(t, w.takes("m1001"))
}

func TestModelsThatASourceNamesAreNotForgotten(t *testing.T) {
	t.Parallel()
	w := newWard()
	w.says(0, health.Report{Models: models(health.ModelReady, "a", "b", "c"), Complete: true, OnDemand: health.No})
	for i := range 10 * maxModels {
		name := fmt.Sprint("other", i)
		w.e.ObserveModel(Key(name), name, w.now+int64(i), time.Millisecond, 1)
	}
	assert.True(t, w.takes("a") && w.takes("b") && w.takes("c"))
}

func TestReportsAndPicksAtTheSameTime(t *testing.T) {
	t.Parallel()
	w := newWard()
	var wg sync.WaitGroup
	for s := range 3 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(s), 0))
			for i := range 300 {
				n := rng.IntN(40)
				r := health.Report{Complete: s > 0, Load: health.Load{Has: health.HasActive | health.HasVictim, Active: n}}
				for m := range n {
					r.Models = append(r.Models, health.Model{Name: fmt.Sprint(s, "-", m), State: health.ModelReady})
				}
				w.g.Report(w.e, s, w.now+int64(i), &r)
				if rng.IntN(10) == 0 {
					w.g.Withdraw(w.e, s, w.now)
				}
			}
		})
	}
	wg.Go(func() {
		for i := range 3000 {
			name := fmt.Sprint("called-", i%600)
			w.e.ObserveModel(Key(name), name, w.now+int64(i), time.Millisecond, 1)
			w.takes(name)
			w.e.Health()
		}
	})
	wg.Wait()
}

// steadyReport is what a server with a number of models says again and again.
func steadyReport(n int) health.Report {
	r := health.Report{
		Server: health.ServerReady, Complete: true, OnDemand: health.Yes, Interval: time.Second,
		Load: health.Load{Has: health.HasActive | health.HasWaiting | health.HasWorkers | health.HasConnections | health.HasUtilization |
			health.HasMemoryFree | health.HasLaneFree | health.HasVictim, Workers: 4, MemoryFree: .5},
	}
	for i := range n {
		r.Models = append(r.Models, health.Model{Name: fmt.Sprint("model-", i), State: health.ModelReady, Service: time.Second})
	}
	return r
}

func TestASteadyReportDoesNotAllocate(t *testing.T) {
	w := newWard()
	r := steadyReport(20)
	w.says(1, r)
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		w.now += int64(time.Second)
		r.Load.Active++
		w.g.Report(w.e, 1, w.now, &r)
		w.g.examine(w.e, w.now, 0)
	}))
}

func BenchmarkReport(b *testing.B) {
	for _, n := range []int{4, 16, 64} {
		b.Run(fmt.Sprintf("models=%d", n), func(b *testing.B) {
			w := newWard()
			r := steadyReport(n)
			w.says(1, r)
			b.ReportAllocs()
			for b.Loop() {
				w.now += int64(time.Second)
				r.Load.Active = int(w.now) & 7
				w.g.Report(w.e, 1, w.now, &r)
			}
		})
	}
}

func TestSlowStart(t *testing.T) {
	t.Parallel()
	w := newWard()
	w.e.SlowStart(w.now, 10*time.Second)
	assert.InDelta(t, minRamp, w.e.Ramp(w.now), 1e-9)
	w.after(5 * time.Second)
	assert.InDelta(t, .5, w.e.Ramp(w.now), 1e-9)
	w.after(6 * time.Second)
	assert.InDelta(t, 1, w.e.Ramp(w.now), 1e-9)
	assert.Zero(t, w.e.stands()&ramping)
	w.e.SlowStart(w.now, 0)
	assert.InDelta(t, 1, w.e.Ramp(w.now), 1e-9)
}

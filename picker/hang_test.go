package picker

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mlbalancer/mlbalancer/breaker"
	"github.com/mlbalancer/mlbalancer/health"
)

// hospital is two endpoints, at a and at b, that hold two models, x and y, and answer within 20 ms, in virtual time.
type hospital struct {
	g     *Guard
	table *Table
	rng   *rand.Rand
	now   time.Duration
	seq   int
	queue events
	ill   func(model string, at int) (takes time.Duration, o Outcome)
	calls map[visitOf][]time.Duration // when they were placed
}

type visitOf struct {
	model string
	at    int
}

func newHospital(o Options) *hospital {
	h := &hospital{rng: rand.New(rand.NewPCG(1, 2)), now: time.Hour, calls: map[visitOf][]time.Duration{}}
	h.g = NewGuard(breaker.DefaultConfig(), h.rng.Uint64)
	plan := planOf(o)
	plan.Guard = h.g
	members, status := fleet(2)
	h.table = NewTable(nil, plan, members, status, h.rng.Uint64)
	h.g.Group.Set(int64(h.now), []*breaker.Breaker{members[0].Breaker(), members[1].Breaker()})
	for i := range members {
		members[i].Reconnected(int64(h.now) - 1)
	}
	h.every(time.Second, func() {
		for i := range members {
			r := health.Report{Models: models(health.ModelReady, "x", "y"), Complete: true, OnDemand: health.No, Interval: time.Second}
			h.g.Report(members[i].Endpoint, 0, int64(h.now), &r)
		}
	})
	h.every(100*time.Millisecond, func() { h.g.Watch(h.table, int64(h.now)) })
	return h
}

func (h *hospital) after(d time.Duration, run func()) {
	h.seq++
	heap.Push(&h.queue, event{h.now + d, h.seq, run})
}

// every runs now and then again and again.
func (h *hospital) every(d time.Duration, run func()) {
	run()
	h.after(d, func() { h.every(d, run) })
}

// pass has some calls a second, of one model or the other, for a while.
func (h *hospital) pass(d time.Duration, rate int) {
	until := h.now + d
	h.after(0, func() { h.arrive(until, time.Second/time.Duration(rate)) })
	for h.queue[0].at < until {
		e := heap.Pop(&h.queue).(event)
		h.now = e.at
		e.run()
	}
	h.now = until
}

func (h *hospital) arrive(until, each time.Duration) {
	if h.now >= until {
		return
	}
	h.call([]string{"x", "y"}[h.rng.IntN(2)])
	h.after(each, func() { h.arrive(until, each) })
}

func (h *hospital) call(model string) {
	a := &Attempt{}
	q := Query{Request: Request{ModelID: model}, Key: Key(model), Now: int64(h.now)}
	at := h.table.Place(&q, int64(h.now+5*time.Second), a).Index
	if at < 0 {
		return
	}
	h.calls[visitOf{model, at}] = append(h.calls[visitOf{model, at}], h.now)
	takes, o := 20*time.Millisecond, Success
	if h.ill != nil {
		if t, is := h.ill(model, at); t > 0 {
			takes, o = t, is
		}
	}
	h.after(takes, func() { a.End(int64(h.now), o, 0, true) })
}

// share returns which part of a model's calls in a time went to an endpoint.
func (h *hospital) share(model string, at int, from, to time.Duration) float64 {
	count := func(at int) (n int) {
		for _, t := range h.calls[visitOf{model, at}] {
			if t >= from && t < to {
				n++
			}
		}
		return n
	}
	here, there := count(at), count(1-at)
	return float64(here) / float64(max(1, here+there))
}

// rules returns why breakers of endpoints and of models opened.
func (h *hospital) rules() (endpoints, models []breaker.Rule) {
	h.g.Group.Drain(func(e breaker.Event) {
		switch {
		case e.To != breaker.Open:
		case e.Model == "":
			endpoints = append(endpoints, e.Reason.Rule)
		default:
			models = append(models, e.Reason.Rule)
		}
	})
	return endpoints, models
}

// home returns where a model's calls went, for the greater part.
func (h *hospital) home(model string) int {
	if len(h.calls[visitOf{model, 0}]) > len(h.calls[visitOf{model, 1}]) {
		return 0
	}
	return 1
}

// hang makes one model, or both, hang at an endpoint until some time from now and fail then, and later at once.
func (h *hospital) hang(at int, d time.Duration, o Outcome, models ...string) (began time.Duration) {
	began = h.now
	h.ill = func(model string, where int) (time.Duration, Outcome) {
		if where == at && slices.Contains(models, model) {
			return max(time.Millisecond, began+d-h.now), o
		}
		return 0, Success
	}
	return began
}

// eachHospital runs a test under each strategy and at different rates.
func eachHospital(t *testing.T, f func(t *testing.T, h *hospital, rate int)) {
	t.Parallel()
	for _, strategy := range []string{"ring", "affinity", "p2c"} {
		for _, rate := range []int{200, 1000} {
			t.Run(fmt.Sprint(strategy, " ", rate), func(t *testing.T) {
				h := newHospital(Defaults(strategy))
				h.pass(5*time.Second, rate)
				f(t, h, rate)
			})
		}
	}
}

// A model that hangs on an endpoint for a while, and then fails there, as one does whose process has died, is that model's
// matter: it goes elsewhere, and the others stay.
func TestModelThatHangsLeavesAlone(t *testing.T) {
	eachHospital(t, func(t *testing.T, h *hospital, rate int) {
		at := h.home("y")
		before := h.share("y", at, 0, h.now)
		began := h.hang(at, 1500*time.Millisecond, ModelFault, "x")
		h.pass(8*time.Second, rate)

		endpoints, models := h.rules()
		assert.Empty(t, endpoints, "breakers of endpoints")
		require.NotEmpty(t, models)
		assert.Equal(t, breaker.Rule(breaker.Hung), models[0])
		assert.Less(t, h.share("x", at, began+500*time.Millisecond, h.now), .02, "it has moved")
		assert.GreaterOrEqual(t, h.share("y", at, began, h.now), .9*before, "the other one stays")
		assert.GreaterOrEqual(t, h.share("y", at, began+500*time.Millisecond, began+1500*time.Millisecond), .9*before,
			"while calls hang too")
	})
}

// Where all hang it is the endpoint.
func TestEndpointThatHangsIsFoundByAllModels(t *testing.T) {
	eachHospital(t, func(t *testing.T, h *hospital, rate int) {
		at := h.home("y")
		began := h.hang(at, 5*time.Second, Failure, "x", "y")
		h.pass(time.Second, rate)

		endpoints, models := h.rules()
		require.NotEmpty(t, endpoints)
		assert.Equal(t, breaker.Rule(breaker.Hung), endpoints[0])
		assert.Empty(t, models, "breakers of models")
		for _, model := range []string{"x", "y"} {
			assert.Zero(t, h.share(model, at, began+400*time.Millisecond, h.now), model)
		}
	})
}

// A model that is slow now and then, and answered between, does not hang.
func TestModelThatIsAnsweredDoesNotHang(t *testing.T) {
	eachHospital(t, func(t *testing.T, h *hospital, rate int) {
		h.ill = func(model string, _ int) (time.Duration, Outcome) {
			if model == "x" && h.rng.IntN(10) == 0 {
				return 2 * time.Second, Success
			}
			return 0, Success
		}
		h.pass(8*time.Second, rate)
		_, models := h.rules()
		assert.Empty(t, models, "breakers of models")
	})
}

// If there is but one model, it cannot be told from the endpoint.
func TestOnlyModelThatHangsIsTheEndpoint(t *testing.T) {
	t.Parallel()
	e := NewEndpoint("a")
	now := int64(time.Hour)
	e.ObserveModel(Key("x"), "x", now-int64(time.Second), time.Millisecond, 1)
	e.ObserveModel(Key("y"), "y", now-int64(time.Minute), time.Millisecond, 1)
	assert.Zero(t, e.breaker.Stuck())
	g := NewGuard(breaker.DefaultConfig(), rand.Uint64)
	g.Group.Set(now, []*breaker.Breaker{e.breaker})
	g.Group.Tick(now)
	_, ok := e.breaker.AllowModel(now, 100*time.Millisecond, Key("x"))
	require.True(t, ok)
	g.Group.Tick(now + int64(200*time.Millisecond))
	assert.Zero(t, e.breaker.Stuck(), "nobody asks for another")
	e.ObserveModel(Key("y"), "y", now-int64(time.Millisecond), time.Millisecond, 1)
	g.Group.Tick(now + int64(300*time.Millisecond))
	assert.Equal(t, 1, e.breaker.Stuck(), "another was answered a moment before")
}

package breaker

import (
	"encoding/json"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEventsTellTheStory(t *testing.T) {
	w := newWorld(t, 1, nil)
	b := w.members[0]
	_, ok := b.Last()
	assert.False(t, ok)
	start := w.now
	w.open(b)
	w.wait(b.OpenLeft(w.now))
	due := w.now
	w.call(b, Success, Success, Success)
	w.drain()
	assert.Equal(t, []Event{
		{Endpoint: "e0", From: Closed, To: Open, At: start, OpenFor: time.Second, Reason: Reason{Rule: Consecutive, Count: 5}},
		{Endpoint: "e0", From: Open, To: HalfOpen, At: due, Reason: Reason{Rule: Due}},
		{Endpoint: "e0", From: HalfOpen, To: Closed, At: due, Reason: Reason{Rule: Probed, Count: 3}},
	}, w.events)
	last, ok := b.Last()
	assert.True(t, ok)
	assert.Equal(t, w.events[2], last)
	assert.Equal(t, "e0: closed to open: 5 calls failed in a row; for 1s", w.events[0].String())
}

func TestReasonsInWords(t *testing.T) {
	for want, r := range map[string]Reason{
		"5 calls failed in a row":                                         {Rule: Consecutive, Count: 5},
		"6 calls in a row hang or failed, nothing was answered for 2s":    {Rule: Hung, Count: 6, Within: 2 * time.Second},
		"8 of 13 calls failed in 30s (0.62)":                              {Rule: FailureRatio, Count: 8, Calls: 13, Within: 30 * time.Second},
		"8 of 13 calls were slow in 30s (0.62, the rest 0.10)":            {Rule: SlowRatio, Count: 8, Calls: 13, Within: 30 * time.Second, Rate: 0.1},
		"4 of 17 calls failed, where the rest's rate is 0.001 (llr 18.3)": {Rule: Sequential, Count: 4, Calls: 17, Rate: 0.001, LLR: 18.3},
		"open time is over":                                               {Rule: Due},
		"a probe failed":                                                  {Rule: ProbeFailed},
		"a probe did not end within its lease of at least 1s":             {Rule: ProbeExpired, Within: time.Second},
		"3 probes succeeded":                                              {Rule: Probed, Count: 3},
		"only 1 may be open now":                                          {Rule: OverCap, Count: 1},
		"rule(0)":                                                         {},
	} {
		assert.Equal(t, want, r.String())
	}
	js, err := json.Marshal(Event{Endpoint: "a", Model: "m", To: Open, OpenFor: time.Second, Reason: Reason{Rule: FailureRatio, Count: 8, Calls: 13}})
	require.NoError(t, err)
	assert.JSONEq(t, `{"endpoint":"a","model":"m","from":"closed","to":"open","at_ns":0,"open_for_ns":1000000000,
		"reason":{"rule":"failure-ratio","count":8,"calls":13}}`, string(js))
	assert.Equal(t, "a, model m: closed to half-open: open time is over", Event{Endpoint: "a", Model: "m", To: HalfOpen, Reason: Reason{Rule: Due}}.String())
	assert.Equal(t, "state(7) status(8) outcome(9) rule(99)", State(7).String()+" "+Status(8).String()+" "+Outcome(9).String()+" "+Rule(99).String())
}

// BRK-05: a callback that reads everything, makes calls that change the state, and takes its time.
func TestEventsCallbackMayDoAnything(t *testing.T) {
	w := newWorld(t, 2, nil)
	a, b := w.members[0], w.members[1]
	w.open(a)
	entered, release := make(chan struct{}), make(chan struct{})
	var seen []string
	var draining sync.WaitGroup
	draining.Go(func() {
		w.group.Drain(func(e Event) {
			seen = append(seen, e.Endpoint)
			if len(seen) > 1 {
				return
			}
			assert.Equal(t, Open, a.State())
			a.Counts()
			a.Last()
			w.group.Open()
			w.group.Drain(func(Event) { t.Error("a drain within a drain") })
			w.group.Tick(w.now)
			w.group.Configure(w.now, w.group.Config())
			for range 5 {
				p, _ := b.Allow(w.now, time.Second)
				b.Done(p, w.now, Failure)
			}
			assert.Equal(t, Open, b.State())
			close(entered)
			<-release
		})
	})
	<-entered
	w.wait(b.OpenLeft(w.now)) // calls, ticks and changes go on meanwhile
	w.closeAgain(b)
	w.group.Tick(w.now)
	w.group.Drain(func(Event) { t.Error("a second drain meanwhile") })
	close(release)
	draining.Wait()
	assert.Equal(t, []string{"e0"}, seen, "a drain ends with what had happened when it began")
	w.drain()
	require.Len(t, w.events, 3)
	assert.Equal(t, Closed, w.events[2].To)
}

func TestEventsKeepTheLast(t *testing.T) {
	w := newWorld(t, 1, nil)
	b := w.members[0]
	const rounds = 1000
	for range rounds {
		w.open(b)
		w.wait(b.OpenLeft(w.now))
		w.closeAgain(b)
	}
	w.drain()
	require.Len(t, w.events, maxEvents)
	assert.Equal(t, uint64(3*rounds-maxEvents), w.group.Lost())
	last, _ := b.Last()
	assert.Equal(t, last, w.events[maxEvents-1])
	for i, e := range w.events[1:] {
		require.Equal(t, w.events[i].To, e.From)
	}
	w.events = nil
	w.drain()
	assert.Empty(t, w.events)
	w.open(b)
	assert.Equal(t, []Rule{Consecutive}, w.rules())
}

// Whoever drains sees each breaker's changes in their order, with none missing, while others make them.
func TestEventsInOrderUnderConcurrency(t *testing.T) {
	c := DefaultConfig()
	c.MaxEjectionPercent = 100
	c.OpenFor, c.MaxOpenFor = Duration(time.Millisecond), Duration(time.Millisecond)
	g := NewGroup(c, rand.Uint64)
	members := []*Breaker{New("a"), New("b")}
	g.Set(0, members)
	var clock atomic.Int64
	var read atomic.Uint64
	var calling, draining sync.WaitGroup
	var done atomic.Bool
	state := map[string]State{}
	n := 0
	drain := func() {
		g.Drain(func(e Event) {
			assert.Equal(t, state[e.Endpoint], e.From)
			state[e.Endpoint] = e.To
			n++
		})
		read.Store(g.events.read)
	}
	draining.Go(func() {
		for !done.Load() {
			drain()
		}
	})
	for range 3 {
		calling.Go(func() {
			for i := range 20_000 {
				for g.events.next.Load()-read.Load() > maxEvents/2 {
					runtime.Gosched()
				}
				b := members[i%2]
				now := clock.Add(int64(10 * time.Microsecond))
				if p, ok := b.Allow(now, 0); ok {
					b.Done(p, now, map[bool]Outcome{true: Success, false: Failure}[p.Probe()])
				}
			}
		})
	}
	calling.Wait()
	done.Store(true)
	draining.Wait()
	drain()
	assert.Zero(t, g.Lost())
	assert.Greater(t, n, 100)
	for _, b := range members {
		assert.Equal(t, b.State(), state[b.name])
	}
}

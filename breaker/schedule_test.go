package breaker

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// schedule runs a group and its model side by side.
type schedule struct {
	t     *testing.T
	real  *Group
	model *model
	pairs []*scheduled
	now   int64
	at    int
}

type scheduled struct {
	real  *Breaker
	model *modelBreaker
	calls []scheduledCall
}

type scheduledCall struct {
	permit Permit
	model  *modelCall
}

func newSchedule(t *testing.T, seed uint64, n int, c Config) *schedule {
	require.NoError(t, c.Validate())
	s := &schedule{t: t, now: int64(time.Hour)}
	s.real = NewGroup(c, rand.New(rand.NewPCG(seed, 6)).Uint64)
	s.model = &model{config: c, rand: rand.New(rand.NewPCG(seed, 6)).Uint64}
	var members []*Breaker
	for i := range n {
		name := fmt.Sprint("e", i)
		pair := &scheduled{real: New(name), model: &modelBreaker{m: s.model, name: name, quietSince: s.now}}
		members = append(members, pair.real)
		s.model.members = append(s.model.members, pair.model)
		s.pairs = append(s.pairs, pair)
	}
	s.real.Set(s.now, members)
	s.model.ticked = 0
	s.tick()
	return s
}

// maxCalls bounds the calls of a breaker in flight, since the real one watches no more than 28 of one goroutine.
const maxCalls = 28

func (s *schedule) allow(i int, slow time.Duration) {
	x := s.pairs[i]
	if len(x.calls) == maxCalls {
		return
	}
	p, ok := x.real.Allow(s.now, slow)
	c := x.model.allow(s.now, slow)
	if ok != (c != nil) || ok && c.probe != p.Probe() {
		s.t.Fatalf("step %d, %s: allowed %v as %+v, want %+v", s.at, x.model.name, ok, p, c)
	}
	if ok {
		x.calls = append(x.calls, scheduledCall{p, c})
	}
	s.check()
}

func (s *schedule) done(i, call int, o Outcome) {
	x := s.pairs[i]
	if len(x.calls) == 0 {
		return
	}
	call %= len(x.calls)
	c := x.calls[call]
	x.calls = slices.Delete(x.calls, call, call+1)
	x.real.Done(c.permit, s.now, o)
	x.model.done(c.model, s.now, o)
	s.check()
}

func (s *schedule) tick() {
	if got, want := s.real.Tick(s.now), s.model.tick(s.now); got != want {
		s.t.Fatalf("step %d: the tick freed %v, want %v", s.at, got, want)
	}
	s.check()
}

func (s *schedule) check() {
	s.at++
	s.real.Drain(func(e Event) {
		require.NotEmpty(s.t, s.model.events, "step %d: %v", s.at, e)
		require.Equal(s.t, s.model.events[0], e, "step %d", s.at)
		s.model.events = s.model.events[1:]
	})
	if len(s.model.events) > 0 {
		s.t.Fatalf("step %d: missing %v", s.at, s.model.events)
	}
	if open, limit := s.real.Open(); open != s.model.open || limit != s.model.limit() {
		s.t.Fatalf("step %d: %d of %d open, want %d of %d", s.at, open, limit, s.model.open, s.model.limit())
	}
	for _, x := range s.pairs {
		want := readout{State: x.model.state, Status: x.model.statusAt(s.now), next: x.model.next(s.now), ramp: x.model.ramp(s.now)}
		if x.model.state == Closed {
			c := x.model.counts()
			want.Counts = Counts{Calls: c.calls(), Failures: int(c.failed), Slow: int(c.slow), Late: x.model.late, Waiting: x.model.waiting}
		}
		got := readout{x.real.State(), x.real.Status(s.now), x.real.Next(s.now), x.real.Ramp(s.now), x.real.Counts()}
		if got != want {
			s.t.Fatalf("step %d, %s: got %+v, want %+v", s.at, x.model.name, got, want)
		}
	}
}

// readout is all that can be seen of a breaker.
type readout struct {
	State
	Status
	next int64
	ramp float64
	Counts
}

// play turns bytes into a schedule: how many breakers, how they are configured, and what is done when.
func play(t *testing.T, data []byte) *schedule {
	next := func() int {
		if len(data) == 0 {
			return 0
		}
		b := data[0]
		data = data[1:]
		return int(b)
	}
	c := DefaultConfig()
	n := 1 + next()%4
	c.ConsecutiveFailures = next() % 8
	c.FailureRatio = []float64{0, 0.3, 0.5, 1}[next()%4]
	c.MinRequests = 1 + next()%20
	c.Window = Duration([]time.Duration{100 * time.Millisecond, 2 * time.Second, 30 * time.Second}[next()%3])
	c.SlowCall.Ratio = []float64{0, 0.3, 0.5, 1}[next()%4]
	c.Sequential = next()%2 == 0
	c.OpenFor = Duration([]time.Duration{time.Millisecond, 300 * time.Millisecond, time.Second}[next()%3])
	c.MaxOpenFor = Duration([]time.Duration{time.Second, 7 * time.Second, 300 * time.Second}[next()%3])
	c.HalfOpenProbes = 1 + next()%maxProbes
	c.MaxEjectionPercent = []int{0, 34, 50, 67, 100, 100, 100, 100}[next()%8]
	c.RampFor = []time.Duration{0, time.Second, 30 * time.Second}[next()%3]
	s := newSchedule(t, uint64(next()), n, c)

	slow := []time.Duration{0, 0, 50 * time.Millisecond, 200 * time.Millisecond, time.Second, 3 * time.Second, 5 * time.Minute}
	waits := []time.Duration{
		0, 1, time.Microsecond, 500 * time.Microsecond, 5 * time.Millisecond, 40 * time.Millisecond, 300 * time.Millisecond,
		2 * time.Second, 20 * time.Second,
	}
	for len(data) > 0 {
		what := next()
		i := what / 9 % n
		switch what % 9 {
		case 0, 1:
			s.allow(i, slow[next()%len(slow)])
		case 2, 3:
			s.done(i, next(), []Outcome{Success, Failure, Success, Failure, Failure, Slow, Unsent, Neutral}[next()%8])
		case 4: // several calls that end at once
			k, o := 1+next()%12, []Outcome{Success, Failure, Failure, Slow}[next()%4]
			if o == Success {
				k *= 8
			}
			for range k {
				s.allow(i, time.Second)
				s.done(i, len(s.pairs[i].calls)-1, o)
			}
		case 5:
			s.now += int64(waits[next()%len(waits)])
			s.check()
		case 6:
			step := []time.Duration{0, 50 * time.Millisecond, 100 * time.Millisecond, 900 * time.Millisecond}[next()%4]
			for range 1 + next()%8 {
				s.now += int64(step)
				s.tick()
			}
		case 7:
			s.now = min(s.now+int64(time.Minute), s.pairs[i].real.Next(s.now))
			s.check()
		case 8:
			if next() > 250 {
				s.pairs[i].real.Reset(s.now)
				s.pairs[i].model.reset(s.now)
			}
			s.check()
		}
	}
	return s
}

func TestModel(t *testing.T) {
	var rules [WasReset + 1]int
	const schedules, length = 200, 600
	for seed := range schedules {
		rng := rand.New(rand.NewPCG(uint64(seed), 7))
		data := make([]byte, length)
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		s := play(t, data)
		for _, e := range s.real.all() {
			rules[e.Reason.Rule]++
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	for r := Consecutive; r < OverCap; r++ {
		t.Logf("%v: %d", r, rules[r])
		require.GreaterOrEqual(t, rules[r], 5, "%v hardly ever happened", r)
	}
}

// all returns the events that the log still holds.
func (g *Group) all() (events []Event) {
	for i := range g.events.slots {
		if e := g.events.slots[i].Load(); e != nil {
			events = append(events, e.Event)
		}
	}
	return events
}

func FuzzBreaker(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("two breakers, some rules and what they make of it"))
	f.Add([]byte{1, 5, 2, 9, 2, 2, 0, 2, 2, 2, 4, 0, 0, 4, 9, 1, 6, 7, 4, 3, 0, 6, 7, 4, 9, 1})
	f.Add([]byte{3, 3, 0, 0, 0, 0, 1, 0, 0, 0, 2, 1, 1, 0, 2, 0, 2, 0, 2, 5, 6, 6, 5, 6, 6, 7, 6, 0, 3, 7, 6, 2, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 2000 {
			return
		}
		play(t, data)
	})
}

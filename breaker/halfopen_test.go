package breaker

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOpenRefusesUntilDue(t *testing.T) {
	w := newWorld(t, 1, nil)
	b := w.members[0]
	w.open(b)
	left := b.OpenLeft(w.now)
	assert.InDelta(t, time.Second, left, unit)
	assert.Equal(t, w.now+int64(left), b.Next(w.now))
	w.wait(left - unit)
	w.refused(b)
	assert.Equal(t, Refusing, b.Status(w.now))
	w.wait(unit)
	assert.Equal(t, Probing, b.Status(w.now))
	assert.Equal(t, Open, b.State(), "asking for the status changes nothing")
	assert.Equal(t, int64(math.MaxInt64), b.Next(w.now))
	w.begin(b, time.Second)
	assert.Equal(t, HalfOpen, b.State())
	assert.Equal(t, []Rule{Consecutive, Due}, w.rules())
}

func TestOpenTimeDoublesUpToMax(t *testing.T) {
	w := newWorld(t, 1, func(c *Config) { c.MaxOpenFor = Duration(10 * time.Second) })
	b := w.members[0]
	w.open(b)
	for _, want := range []time.Duration{1, 2, 4, 8, 10, 10, 10} {
		last, _ := b.Last()
		require.Equal(t, want*time.Second, last.OpenFor)
		require.InDelta(t, want*time.Second, b.OpenLeft(w.now), unit)
		w.wait(b.OpenLeft(w.now))
		w.call(b, Failure)
	}
}

func TestOpenTimeIsRandom(t *testing.T) {
	s := newSettings(DefaultConfig())
	for exp, base := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300} {
		base *= time.Second
		assert.Equal(t, base, s.openTime(uint(exp), 0))
		assert.InDelta(t, min(base*5/4, 300*time.Second), s.openTime(uint(exp), 1<<63), 1)
		assert.InDelta(t, min(base*3/2, 300*time.Second), s.openTime(uint(exp), math.MaxUint64), 1)
	}
	c := DefaultConfig()
	c.OpenFor, c.MaxOpenFor = Duration(time.Millisecond), Duration(24*time.Hour)
	assert.Equal(t, 24*time.Hour, newSettings(c).openTime(40, 0), "the exponent does not overflow")
}

func TestOpenTimeStartsAnewAfterSteady(t *testing.T) {
	for name, test := range map[string]struct {
		closedFor time.Duration
		successes int
		exp       int
	}{
		"steady":                  {31 * time.Second, 10, 0},
		"too short":               {29 * time.Second, 1000, 2},
		"too few successes":       {time.Hour, 9, 2},
		"longer than its pause":   {5 * time.Minute, 10, 0},
		"successes need no order": {31 * time.Second, 100, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, nil)
			b := w.members[0]
			probe := w.halfOpen(b)
			b.Done(probe, w.now, Failure) // now it is open for 2 s
			w.wait(b.OpenLeft(w.now))
			w.closeAgain(b)
			w.calls(b, test.successes, Success)
			w.pass(test.closedFor)
			w.calls(b, 5, Failure)
			last, _ := b.Last()
			assert.Equal(t, time.Second<<test.exp, last.OpenFor)
		})
	}
}

func TestHalfOpenGrantsAsManyAsConfigured(t *testing.T) {
	for _, n := range []int{1, 3, 16} {
		w := newWorld(t, 1, func(c *Config) { c.HalfOpenProbes = n })
		b := w.members[0]
		probes := []Permit{w.halfOpen(b)}
		for range n - 1 {
			require.Equal(t, Probing, b.Status(w.now))
			probes = append(probes, w.begin(b, time.Second))
		}
		assert.Equal(t, Refusing, b.Status(w.now))
		w.refused(b)
		for i, p := range probes {
			require.Equal(t, HalfOpen, b.State(), "%d of %d", i, n)
			b.Done(p, w.now, Success)
		}
		assert.Equal(t, Closed, b.State())
	}
}

func TestHalfOpenSuccessesClose(t *testing.T) {
	w := newWorld(t, 1, nil)
	b := w.members[0]
	b.Done(w.halfOpen(b), w.now, Success)
	w.call(b, Success)
	require.Equal(t, HalfOpen, b.State())
	w.call(b, Success)
	require.Equal(t, Closed, b.State())
	assert.Equal(t, Reason{Rule: Probed, Count: 3}, w.lastReason())
	assert.Zero(t, b.Counts(), "it starts with an empty window")
	assert.Equal(t, Usable, b.Status(w.now))
}

func TestHalfOpenFailureReopens(t *testing.T) {
	for _, before := range [][]Outcome{nil, {Success}, {Success, Success}} {
		w := newWorld(t, 1, nil)
		b := w.members[0]
		w.open(b)
		w.wait(b.OpenLeft(w.now))
		w.call(b, before...)
		w.call(b, Failure)
		require.Equal(t, Open, b.State())
		assert.Equal(t, Reason{Rule: ProbeFailed}, w.lastReason())
		w.refused(b)
	}
}

func TestHalfOpenSlowProbeReopens(t *testing.T) {
	w := newWorld(t, 1, nil)
	b := w.members[0]
	b.Done(w.halfOpen(b), w.now, Slow)
	assert.Equal(t, Open, b.State())

	w = newWorld(t, 1, func(c *Config) { c.SlowCall.Ratio = 0 })
	b = w.members[0]
	b.Done(w.halfOpen(b), w.now, Slow)
	w.call(b, Slow, Slow)
	assert.Equal(t, Closed, b.State(), "where slow calls do not matter they are successes")
}

func TestHalfOpenHungProbeExpires(t *testing.T) {
	for _, test := range []struct{ slow, lease time.Duration }{
		{0, time.Second}, {time.Millisecond, time.Second}, {3 * time.Second, 3 * time.Second},
	} {
		for _, by := range []string{"a call", "the tick", "the status", "its own end"} {
			w := newWorld(t, 1, nil)
			b := w.members[0]
			w.open(b)
			w.wait(b.OpenLeft(w.now))
			hung := w.begin(b, test.slow)
			w.call(b, Success)
			assert.InDelta(t, w.now+int64(test.lease), b.Next(w.now), unit)
			w.wait(test.lease - unit)
			w.tick()
			require.Equal(t, HalfOpen, b.State())
			w.wait(2 * unit)
			switch by {
			case "a call":
				w.refused(b)
			case "the tick":
				w.tick()
			case "the status":
				require.Equal(t, Refusing, b.Status(w.now))
				require.Equal(t, w.now+1, b.Next(w.now))
				continue
			case "its own end":
				b.Done(hung, w.now, Success)
			}
			require.Equal(t, Open, b.State(), by)
			assert.Equal(t, ProbeExpired, w.lastReason().Rule)
			last, _ := b.Last()
			assert.Equal(t, 2*time.Second, last.OpenFor)

			// What the hung probe says when it ends at last matters to nobody.
			w.wait(2*time.Second + unit)
			w.call(b, Success)
			b.Done(hung, w.now, Failure)
			require.Equal(t, HalfOpen, b.State())
			w.call(b, Success, Success)
			require.Equal(t, Closed, b.State())
			b.Done(hung, w.now, Failure)
			assert.Zero(t, b.Counts())
		}
	}
}

func TestHalfOpenUnsentReturnsProbe(t *testing.T) {
	w := newWorld(t, 1, nil)
	b := w.members[0]
	b.Done(w.halfOpen(b), w.now, Unsent)
	w.calls(b, 1000, Unsent)
	require.Equal(t, HalfOpen, b.State())
	w.closeAgain(b)
}

func TestHalfOpenNeutralReturnsProbe(t *testing.T) {
	w := newWorld(t, 1, nil)
	b := w.members[0]
	first, second, third := w.halfOpen(b), w.begin(b, time.Second), w.begin(b, time.Second)
	w.tick()
	b.Done(first, w.now, Neutral)
	b.Done(second, w.now, Neutral)
	require.Equal(t, HalfOpen, b.State())
	assert.True(t, w.tick(), "probes were freed")
	w.refused(b) // but three were granted in this period
	assert.False(t, w.tick())
	w.wait(time.Second - 2*unit) // less than the third one's lease
	w.refused(b)
	b.Done(third, w.now, Success)
	w.wait(2 * unit)
	assert.True(t, w.tick(), "a new period has begun")
	w.call(b, Success, Success)
	assert.Equal(t, Closed, b.State())
}

func TestHalfOpenProbesOfBeforeKeepTheirSlots(t *testing.T) {
	w := newWorld(t, 1, nil)
	b := w.members[0]
	w.open(b)
	w.wait(b.OpenLeft(w.now))
	hung := []Permit{w.begin(b, 10*time.Second), w.begin(b, 3*time.Second)}
	w.call(b, Failure)
	w.wait(b.OpenLeft(w.now)) // 2 s
	p := w.begin(b, time.Minute)
	w.refused(b)
	assert.Equal(t, Refusing, b.Status(w.now))
	assert.InDelta(t, time.Second, b.Next(w.now)-w.now, 2*unit)
	w.now = b.Next(w.now)
	assert.Equal(t, Probing, b.Status(w.now))
	w.call(b, Success) // in the place of the one whose lease ran out
	b.Done(hung[1], w.now, Success)
	b.Done(hung[0], w.now, Success)
	require.Equal(t, HalfOpen, b.State())
	b.Done(p, w.now, Success)
	w.call(b, Success)
	assert.Equal(t, Closed, b.State())
}

func TestHalfOpenPeriodBeginsWithItsFirstGrant(t *testing.T) {
	w := newWorld(t, 1, nil)
	b := w.members[0]
	b.Done(w.halfOpen(b), w.now, Unsent)
	w.wait(900 * time.Millisecond)
	w.calls(b, 3, Neutral)
	w.wait(900 * time.Millisecond)
	w.refused(b)
	w.wait(100 * time.Millisecond)
	w.call(b, Neutral)
}

// Probes that all come back neutral, as in BRK-01: the breaker keeps asking, and closes soon after the endpoint has recovered.
func TestHalfOpenNeutralProbesDoNotWedge(t *testing.T) {
	w := newWorld(t, 1, func(c *Config) { c.OpenFor = Duration(500 * time.Millisecond) })
	b := w.members[0]
	w.open(b)
	asked := w.now
	for start := w.now; w.now < start+int64(20*time.Second); w.pass(50 * time.Millisecond) {
		for {
			p, ok := b.Allow(w.now, time.Second)
			if !ok {
				break
			}
			asked = w.now
			b.Done(p, w.now, Neutral)
		}
		require.LessOrEqual(t, time.Duration(w.now-asked), 550*time.Millisecond)
	}
	recovered := w.now
	for b.State() != Closed {
		w.pass(50 * time.Millisecond)
		if p, ok := b.Allow(w.now, time.Second); ok {
			b.Done(p, w.now, Success)
		}
	}
	assert.LessOrEqual(t, time.Duration(w.now-recovered), time.Second)
}

// An endpoint that takes calls and never answers, as in BRK-03.
func TestHalfOpenHungProbesAreFew(t *testing.T) {
	w := newWorld(t, 3, nil)
	b := w.members[0]
	w.open(b)
	var granted []int64
	type call struct {
		Permit
		deadline int64
	}
	var inFlight []call
	for start := w.now; w.now < start+int64(time.Minute); w.wait(5 * time.Millisecond) {
		config := w.group.Config()
		if p, ok := b.Allow(w.now, config.SlowTime(0, 3*time.Second)); ok {
			granted = append(granted, w.now)
			inFlight = append(inFlight, call{p, w.now + int64(3*time.Second)})
		}
		for len(inFlight) > 0 && inFlight[0].deadline <= w.now {
			b.Done(inFlight[0].Permit, w.now, Failure)
			inFlight = inFlight[1:]
		}
		require.LessOrEqual(t, len(inFlight), 3)
		if n := len(granted); n > 3 {
			require.Greater(t, granted[n-1]-granted[n-4], int64(time.Second))
		}
	}
	assert.Greater(t, len(granted), 9)
	assert.Less(t, len(granted), 30)
}

// An endpoint that refuses every call for half a minute, as in BRK-13.
func TestHalfOpenFailingProbesAreFew(t *testing.T) {
	w := newWorld(t, 2, nil)
	b := w.members[0]
	w.open(b)
	var granted []int64
	for start := w.now; w.now < start+int64(30*time.Second); w.wait(time.Millisecond) {
		if p, ok := b.Allow(w.now, time.Second); ok {
			granted = append(granted, w.now)
			b.Done(p, w.now, Failure)
		}
	}
	assert.Len(t, granted, 4, "after 1, 2, 4 and 8 s")
}

func TestLateResultsDoNotVote(t *testing.T) {
	w := newWorld(t, 1, nil)
	b := w.members[0]
	var closed []Permit
	for range 28 {
		closed = append(closed, w.begin(b, 0))
	}
	watched := w.begin(b, time.Minute)
	w.open(b)
	b.Done(closed[0], w.now, Success)
	b.Done(closed[1], w.now, Failure)
	require.Equal(t, Open, b.State())
	w.wait(b.OpenLeft(w.now))
	probe, other := w.begin(b, time.Second), w.begin(b, time.Second)
	for _, p := range closed[2:8] {
		b.Done(p, w.now, Success)
	}
	require.Equal(t, HalfOpen, b.State())
	w.begin(b, time.Second) // the third probe, so none of the six gave a probe back
	w.refused(b)
	for _, p := range closed[8:14] {
		b.Done(p, w.now, Failure)
	}
	require.Equal(t, HalfOpen, b.State())
	b.Done(probe, w.now, Failure)
	require.Equal(t, Open, b.State())
	b.Done(other, w.now, Success)
	w.wait(b.OpenLeft(w.now))
	w.closeAgain(b)
	for _, p := range closed[14:] {
		b.Done(p, w.now, Failure)
	}
	w.wait(2 * time.Minute)
	w.tick()
	b.Done(watched, w.now, Failure)
	w.tick()
	assert.Equal(t, Closed, b.State())
	assert.Zero(t, b.Counts())
}

func TestRefusalsAreNotCounted(t *testing.T) {
	w := newWorld(t, 1, nil)
	b := w.members[0]
	w.open(b)
	for range 10_000 {
		p, ok := b.Allow(w.now, time.Second)
		require.False(t, ok)
		require.Equal(t, Permit{}, p)
		b.Done(p, w.now, Failure)
	}
	w.wait(b.OpenLeft(w.now))
	w.closeAgain(b)
	for range 100 {
		b.Done(Permit{}, w.now, Failure)
	}
	assert.Zero(t, b.Counts())
	assert.Len(t, w.rules(), 3)
}

func TestRampAfterClosing(t *testing.T) {
	w := newWorld(t, 1, func(c *Config) { c.RampFor = 30 * time.Second })
	b := w.members[0]
	assert.InDelta(t, 1, b.Ramp(w.now), 0, "a new one takes everything at once")
	w.open(b)
	assert.InDelta(t, 0.1, b.Ramp(w.now), 0)
	w.wait(b.OpenLeft(w.now))
	w.closeAgain(b)
	for _, at := range []struct {
		after time.Duration
		ramp  float64
	}{{0, 0.1}, {3 * time.Second, 0.2}, {9 * time.Second, 0.5}, {12 * time.Second, 0.9 - 0.1}, {6 * time.Second, 1}} {
		w.pass(at.after)
		assert.InDelta(t, at.ramp, b.Ramp(w.now), 0.101, "%v later", at.after)
	}
	w.pass(20 * time.Second)
	assert.InDelta(t, 1, b.Ramp(w.now), 0)
	w.wait(1 << 32 * unit) // when the stamps have gone round
	assert.InDelta(t, 1, b.Ramp(w.now), 0)

	w = newWorld(t, 1, nil)
	b = w.members[0]
	w.open(b)
	w.wait(b.OpenLeft(w.now))
	w.closeAgain(b)
	assert.InDelta(t, 1, b.Ramp(w.now), 0, "no ramp is configured")
}

func TestSlowTimesMayBeAbsurd(t *testing.T) {
	w := newWorld(t, 1, nil)
	b := w.members[0]
	for range 20 {
		w.begin(b, math.MaxInt64)
	}
	w.pass(time.Second)
	assert.Zero(t, b.Counts())
	w.open(b)
	w.wait(b.OpenLeft(w.now))
	p := w.begin(b, math.MaxInt64)
	w.pass(time.Second)
	require.Equal(t, HalfOpen, b.State())
	b.Done(p, w.now, Success)
	w.call(b, Success, Success)
	assert.Equal(t, Closed, b.State())
}

// Epochs, stamps and leases go round; where the count starts makes no difference.
func TestAnyFixedPoint(t *testing.T) {
	for _, start := range []int64{
		0, -int64(time.Hour), 1<<52 - int64(90*time.Second), 1<<58 - int64(3*time.Second), 1<<60 - 1, 1_767_225_600e9, -1 << 62,
	} {
		w := newWorld(t, 1, nil)
		w.now = start
		b := New("late")
		w.members[0] = b
		w.group.Set(w.now, w.members)
		for range 3 {
			w.open(b)
			w.refused(b)
			w.wait(b.OpenLeft(w.now))
			hung := w.begin(b, time.Second)
			w.pass(time.Second + 2*unit)
			require.Equal(t, Open, b.State())
			w.wait(b.OpenLeft(w.now))
			w.call(b, Success)
			b.Done(hung, w.now, Success)
			require.Equal(t, HalfOpen, b.State())
			w.call(b, Success, Success)
			require.Equal(t, Closed, b.State())
			for range 5 {
				w.begin(b, time.Second)
			}
			w.pass(900 * time.Millisecond)
			require.Equal(t, Closed, b.State())
			w.pass(250 * time.Millisecond)
			require.Equal(t, Open, b.State())
			w.wait(b.OpenLeft(w.now))
			w.closeAgain(b)
			w.pass(time.Minute)
			w.calls(b, 10, Success)
			w.pass(50 * time.Millisecond)
		}
	}
}

// A probe is judged by its slow time though its lease is longer.
func TestHalfOpenProbeBeyondSlowTimeIsSlow(t *testing.T) {
	for _, test := range []struct{ slow, took time.Duration }{
		{50 * time.Millisecond, 60 * time.Millisecond}, {200 * time.Millisecond, 900 * time.Millisecond}, {0, 999 * time.Millisecond},
		{2 * time.Second, 1900 * time.Millisecond}, {200 * time.Millisecond, 190 * time.Millisecond},
	} {
		w := newWorld(t, 1, nil)
		b := w.members[0]
		w.open(b)
		w.wait(b.OpenLeft(w.now))
		p := w.begin(b, test.slow)
		w.wait(test.took)
		b.Done(p, w.now, Success)
		want := HalfOpen
		if test.slow > 0 && test.took > test.slow {
			want = Open
		}
		assert.Equal(t, want, b.State(), "%v", test)
	}
}

func TestResetForgetsEverything(t *testing.T) {
	for _, from := range []State{Closed, Open, HalfOpen} {
		w := newWorld(t, 2, func(c *Config) { c.MaxEjectionPercent, c.RampFor = 50, time.Minute })
		b := w.members[0]
		w.open(b)
		w.wait(b.OpenLeft(w.now))
		w.closeAgain(b)
		w.calls(b, 4, Failure)
		before := w.begin(b, time.Second)
		b.ModelFault(1, w.now)
		switch from {
		case Open:
			w.call(b, Failure)
		case HalfOpen:
			w.call(b, Failure)
			w.wait(b.OpenLeft(w.now))
			before = w.begin(b, time.Minute)
		}
		require.Equal(t, from, b.State())
		w.tick()
		b.Reset(w.now)
		require.Equal(t, Closed, b.State())
		assert.True(t, w.tick())
		b.Done(before, w.now, Failure)
		assert.Zero(t, b.Counts())
		assert.InDelta(t, 1, b.Ramp(w.now), 0)
		assert.False(t, b.ModelFault(2, w.now))
		open, _ := w.group.Open()
		assert.Zero(t, open)
		w.calls(b, 4, Failure)
		require.Equal(t, Closed, b.State())
		w.call(b, Failure)
		require.Equal(t, Open, b.State())
		assert.InDelta(t, time.Second, b.OpenLeft(w.now), unit, "as if it had never opened")
		if from != Closed {
			assert.Contains(t, w.rules(), WasReset)
		}
	}
	b := New("e")
	b.Reset(0)
	assert.Equal(t, Closed, b.State())
}

// Nobody calls for longer than a stamp can tell.
func TestOpenStaysDueForever(t *testing.T) {
	w := newWorld(t, 2, nil)
	a, b := w.members[0], w.members[1]
	pair := NewPair(a, "m")
	for range 5 {
		p, _ := pair.Allow(w.now, 0)
		pair.Done(p, w.now, Failure)
	}
	w.open(a)
	b.Done(w.halfOpen(b), w.now, Success)
	w.calls(b, 2, Neutral)
	for range 60 * 24 {
		w.wait(time.Hour)
		w.tick()
		pair.Tick(w.now)
		require.Equal(t, Probing, a.Status(w.now))
		require.Equal(t, Probing, b.Status(w.now))
		require.Equal(t, Probing, pair.Status(w.now))
	}
	w.closeAgain(a)
	w.call(b, Success, Success)
	assert.Equal(t, Closed, b.State(), "the success of before still counts")
}

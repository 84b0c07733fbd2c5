package breaker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestClosedOpensOnConsecutiveFailures(t *testing.T) {
	w := newWorld(t, 1, nil)
	b := w.members[0]
	w.calls(b, 4, Failure)
	require.Equal(t, Closed, b.State())
	w.call(b, Failure)
	require.Equal(t, Open, b.State())
	assert.Equal(t, Reason{Rule: Consecutive, Count: 5}, w.lastReason())
	w.refused(b)
}

func TestClosedSuccessEndsRow(t *testing.T) {
	for _, end := range []Outcome{Success, Slow} {
		w := newWorld(t, 1, func(c *Config) { c.FailureRatio = 0 })
		b := w.members[0]
		for range 20 {
			w.calls(b, 4, Failure)
			w.call(b, end)
		}
		require.Equal(t, Closed, b.State())
	}
}

func TestClosedNeutralAndUnsentAreNoVotes(t *testing.T) {
	w := newWorld(t, 1, nil)
	b := w.members[0]
	for range 4 {
		w.call(b, Failure, Neutral, Unsent, Unsent, Neutral)
	}
	assert.Equal(t, Counts{Calls: 4, Failures: 4}, b.Counts())
	w.call(b, Failure)
	assert.Equal(t, Reason{Rule: Consecutive, Count: 5}, w.lastReason())

	w = newWorld(t, 1, nil)
	b = w.members[0]
	w.calls(b, 1000, Neutral)
	w.calls(b, 1000, Unsent)
	require.Equal(t, Closed, b.State())
	assert.Zero(t, b.Counts())
}

func TestClosedOpensOnFailureRatio(t *testing.T) {
	w := newWorld(t, 1, nil)
	b := w.members[0]
	w.call(b, Success, Failure, Failure, Success, Failure, Failure, Success, Failure, Success)
	require.Equal(t, Closed, b.State(), "5 of 9 calls failed, which are too few to go by")
	w.call(b, Failure)
	require.Equal(t, Open, b.State())
	assert.Equal(t, Reason{Rule: FailureRatio, Count: 6, Calls: 10, Within: 30 * time.Second}, w.lastReason())
}

func TestClosedBelowFailureRatio(t *testing.T) {
	w := newWorld(t, 1, nil)
	b := w.members[0]
	w.calls(b, 5, Success)
	for range 1000 {
		w.call(b, Failure, Success)
		w.wait(time.Second)
		w.call(b, Success)
	}
	require.Equal(t, Closed, b.State())
	c := b.Counts()
	assert.InDelta(t, 90, c.Calls, 15)
	assert.InDelta(t, c.Calls/3, c.Failures, 1)
}

func TestClosedForgetsBeyondWindow(t *testing.T) {
	for _, window := range []time.Duration{100 * time.Millisecond, 2 * time.Second, 30 * time.Second, 59 * time.Minute} {
		w := newWorld(t, 1, func(c *Config) {
			c.Window = Duration(window)
			c.ConsecutiveFailures = 0
			c.MinRequests = 100
		})
		b := w.members[0]
		w.calls(b, 10, Failure)
		w.calls(b, 20, Success)
		w.calls(b, 5, Slow)
		require.Equal(t, Counts{Calls: 35, Failures: 10, Slow: 5}, b.Counts())
		w.wait(window - window/minSteps)
		w.tick()
		assert.Equal(t, Counts{Calls: 35, Failures: 10, Slow: 5}, b.Counts(), "%v", window)
		w.wait(window / minSteps * 2)
		w.tick()
		assert.Zero(t, b.Counts(), "%v", window)

		w.calls(b, 3, Success)
		w.wait(100 * window)
		w.call(b, Failure)
		assert.Equal(t, Counts{Calls: 1, Failures: 1}, b.Counts(), "a failure alone moves the window on, %v", window)
	}
}

func TestClosedOpensOnSlowRatio(t *testing.T) {
	w := newWorld(t, 2, nil)
	b := w.members[0]
	w.calls(w.members[1], 100, Success)
	w.calls(b, 5, Success)
	w.calls(b, 4, Slow)
	w.tick()
	w.call(b, Slow)
	require.Equal(t, Closed, b.State(), "slow calls are weighed by the tick")
	w.tick()
	require.Equal(t, Open, b.State())
	assert.Equal(t, Reason{Rule: SlowRatio, Count: 5, Calls: 10, Within: 30 * time.Second}, w.lastReason())
}

func TestClosedSuccessBeyondSlowTimeIsSlow(t *testing.T) {
	w := newWorld(t, 1, nil)
	b := w.members[0]
	inTime, late := w.begin(b, 100*time.Millisecond), w.begin(b, 100*time.Millisecond)
	unwatched := w.begin(b, 0)
	w.wait(100*time.Millisecond - 1)
	b.Done(inTime, w.now, Success)
	w.wait(2 * unit)
	b.Done(late, w.now, Success)
	w.wait(time.Hour)
	b.Done(unwatched, w.now, Success)
	assert.Equal(t, Counts{Calls: 3, Slow: 1}, b.Counts())
}

func TestClosedSlowEverywhereOpensNothing(t *testing.T) {
	w := newWorld(t, 4, nil)
	for range 100 {
		for _, b := range w.members {
			w.call(b, Slow, Success)
		}
		w.pass(time.Second)
	}
	require.Empty(t, w.rules())

	w.pass(time.Minute)
	for w.members[2].State() == Closed { // now only one is
		require.Less(t, w.members[2].Counts().Calls, 30)
		for i, b := range w.members {
			w.call(b, map[bool]Outcome{true: Slow, false: Success}[i == 2])
		}
		w.pass(time.Second)
	}
	require.Equal(t, []Rule{SlowRatio}, w.rules())
	require.Equal(t, Open, w.members[2].State())
}

func TestClosedCallsInFlightVoteWhenLate(t *testing.T) {
	w := newWorld(t, 1, func(c *Config) { c.ConsecutiveFailures = 0 })
	b := w.members[0]
	var late []Permit
	for range 9 {
		late = append(late, w.begin(b, time.Second))
	}
	w.wait(time.Second - 1)
	w.tick()
	assert.Zero(t, b.Counts())
	w.wait(2 * unit)
	w.tick()
	assert.Equal(t, Counts{Calls: 9, Slow: 9, Late: 9}, b.Counts())

	// One vote each, whatever becomes of them: a success no other, a failure also as one, an unsent call none after all.
	for i, o := range []Outcome{Success, Slow, Failure, Failure, Neutral, Unsent} {
		b.Done(late[i], w.now, o)
	}
	assert.Equal(t, Counts{Calls: 8, Slow: 8, Failures: 2, Late: 3}, b.Counts())
	w.call(b, Success)
	require.Equal(t, Closed, b.State())
	w.call(b, Slow)
	w.tick()
	require.Equal(t, Open, b.State())
	assert.Equal(t, Reason{Rule: SlowRatio, Count: 9, Calls: 10, Within: 30 * time.Second}, w.lastReason())
}

func TestClosedHungEndpointOpensWithinSlowTime(t *testing.T) {
	w := newWorld(t, 2, nil)
	b := w.members[0]
	for range 20 * 300 { // 300 calls a second that succeed, then the endpoint hangs
		w.call(b, Success)
		w.wait(time.Second / 300)
		if w.now%int64(50*time.Millisecond) < int64(time.Second/300) {
			w.tick()
		}
	}
	for range 10 {
		w.begin(b, 200*time.Millisecond)
	}
	hung := w.now
	for b.State() == Closed {
		require.Less(t, w.now-hung, int64(time.Second), "%+v", b.Counts())
		w.pass(50 * time.Millisecond)
	}
	assert.LessOrEqual(t, time.Duration(w.now-hung), 200*time.Millisecond+slowUnitTime+2*50*time.Millisecond)
	assert.Equal(t, Hung, w.lastReason().Rule)
	assert.Equal(t, 10, w.lastReason().Count)
}

const slowUnitTime = 1 << slowUnit * time.Nanosecond

func TestClosedFailuresAndHungCallsAddUp(t *testing.T) {
	w := newWorld(t, 2, nil)
	b := w.members[0]
	w.begin(b, time.Second)
	w.begin(b, time.Second)
	w.calls(b, 3, Failure)
	w.pass(time.Second)
	require.Equal(t, Closed, b.State())
	w.pass(150 * time.Millisecond)
	require.Equal(t, Open, b.State())
	assert.Equal(t, Rule(Hung), w.lastReason().Rule)
}

func TestClosedLongCallsDoNotHangWhileOthersEnd(t *testing.T) {
	w := newWorld(t, 1, nil)
	b := w.members[0]
	for range 20 {
		w.begin(b, 5*time.Second)
	}
	for range 600 { // a minute in which something succeeds every 4 s
		if w.now/int64(4*time.Second) != (w.now-int64(100*time.Millisecond))/int64(4*time.Second) {
			w.calls(b, 30, Success)
		}
		w.pass(100 * time.Millisecond)
	}
	require.Equal(t, Closed, b.State(), "%+v", b.Counts())
	w.pass(5*time.Second + 200*time.Millisecond)
	require.Equal(t, Open, b.State())
}

// After the process was stopped for a while, whatever was in flight looks as if it hung.
func TestClosedNothingHangsAfterAStall(t *testing.T) {
	w := newWorld(t, 4, nil)
	type call struct {
		b *Breaker
		p Permit
	}
	var inFlight []call
	for _, b := range w.members {
		for range 10 {
			inFlight = append(inFlight, call{b, w.begin(b, time.Second)})
		}
	}
	w.pass(100 * time.Millisecond)
	w.wait(time.Minute)
	w.tick()
	for _, c := range inFlight {
		c.b.Done(c.p, w.now, Success)
	}
	w.pass(time.Second)
	assert.Empty(t, w.rules())

	for range 10 { // one that hangs is found all the same
		w.begin(w.members[0], time.Second)
	}
	w.wait(time.Minute)
	w.tick()
	require.Equal(t, Closed, w.members[0].State())
	w.pass(1200 * time.Millisecond)
	require.Equal(t, Open, w.members[0].State())
}

// One call a second to an endpoint that hangs, each with a deadline of 3 s: what BRK-11 asks for.
func TestClosedSparseHang(t *testing.T) {
	w := newWorld(t, 2, func(c *Config) { c.Window = Duration(2 * time.Second) })
	b := w.members[0]
	type call struct {
		Permit
		deadline int64
	}
	var inFlight []call
	failed := 0
	for second := 0; b.State() == Closed; second++ {
		require.Less(t, second, 20)
		config := w.group.Config()
		inFlight = append(inFlight, call{w.begin(b, config.SlowTime(0, 3*time.Second)), w.now + int64(3*time.Second)})
		w.pass(time.Second)
		for len(inFlight) > 0 && w.now >= inFlight[0].deadline {
			b.Done(inFlight[0].Permit, w.now, Failure)
			inFlight = inFlight[1:]
			failed++
		}
	}
	assert.LessOrEqual(t, failed, 5)
}

func TestClosedRulesCanBeSwitchedOff(t *testing.T) {
	w := newWorld(t, 2, func(c *Config) {
		c.ConsecutiveFailures, c.FailureRatio, c.SlowCall.Ratio, c.Sequential = 0, 0, 0, false
	})
	b := w.members[0]
	for range 20 {
		w.begin(b, time.Second)
		w.calls(w.members[1], 100, Success)
		w.calls(b, 50, Failure)
		w.calls(b, 50, Slow)
		w.pass(time.Second)
	}
	w.calls(b, 1000, Failure)
	require.Equal(t, Closed, b.State())
}

func TestWithoutGroupNeverOpens(t *testing.T) {
	b := New("e")
	for range 100 {
		p, ok := b.Allow(0, time.Second)
		require.True(t, ok)
		b.Done(p, 1, Failure)
	}
	assert.Equal(t, Closed, b.State())
	assert.Equal(t, Usable, b.Status(0))
	assert.InDelta(t, 1, b.Ramp(0), 0)
	assert.Zero(t, b.Counts())
}

func TestClosedVotesTakenBackBeforeDoNotCount(t *testing.T) {
	w := newWorld(t, 1, nil)
	b := w.members[0]
	late := []Permit{w.begin(b, 100*time.Millisecond), w.begin(b, 100*time.Millisecond)}
	w.pass(200 * time.Millisecond)
	require.Equal(t, 2, b.Counts().Slow)
	w.pass(10 * time.Second)
	b.Done(late[0], w.now, Unsent)
	b.Done(late[1], w.now, Unsent)
	require.Zero(t, b.Counts().Slow)
	w.open(b)
	w.wait(b.OpenLeft(w.now))
	w.closeAgain(b)
	w.call(b, Slow)
	assert.Equal(t, Counts{Calls: 1, Slow: 1}, b.Counts())
}

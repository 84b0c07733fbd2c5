package health

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestScoreOfNothing(t *testing.T) {
	t.Parallel()
	var s Score
	assert.Equal(t, 1.0, s.Value())
	assert.True(t, s.Healthy())
	assert.Equal(t, Parts{}, s.Parts())
	c := DefaultConfig()
	assert.False(t, s.Update(second, &c, new(Vitals), LoadView{OwnInFlight: -1}))
	assert.Equal(t, 1.0, s.Value())
	assert.Equal(t, Parts{}, s.Parts())
}

func TestScoreOfAGoodServer(t *testing.T) {
	t.Parallel()
	for _, cv := range []float64{0, 0.8, 2, 3} {
		s := newServer()
		s.serve(30, 20, 1, cv)
		for range 300 {
			s.serve(1, 200, 1, cv)
			require.Greater(t, s.s.Value(), 0.7, "cv %v", cv)
		}
		assert.Greater(t, s.s.Value(), 0.9, "cv %v", cv)
		assert.Empty(t, s.flips)
	}
}

// Errors or slowness alone make a server unhealthy, whatever else is well, and when they are over it becomes healthy.
func TestScoreCatastrophes(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]func(s *server, cv float64){
		"errors":       func(s *server, cv float64) { s.fail(20, 40) },
		"slowness":     func(s *server, cv float64) { s.serve(20, 40, 20, cv) },
		"rare slow":    func(s *server, cv float64) { s.serve(60, 8, 20, cv) },
		"rare errors":  func(s *server, cv float64) { s.fail(60, 4) },
		"long slow":    func(s *server, cv float64) { s.serve(900, 40, 20, cv) },
		"both at once": func(s *server, cv float64) { s.serve(10, 40, 20, cv); s.fail(20, 40) },
	} {
		for _, cv := range []float64{0, 0.8} {
			for _, good := range []float64{0, 10, 300} {
				s := newServer()
				s.serve(good, 40, 1, cv)
				require.True(t, s.s.Healthy())
				bad(s, cv)
				require.False(t, s.s.Healthy(), "%s after %v s, cv %v: %v of %+v", name, good, cv, s.s.Value(), s.s.Parts())
				require.Equal(t, known(1), s.s.Parts().GPUMemory)
				s.serve(60, 40, 1, cv)
				require.True(t, s.s.Healthy(), "%s after %v s, cv %v: %v of %+v", name, good, cv, s.s.Value(), s.s.Parts())
				require.Greater(t, s.s.Value(), 0.9)
				require.Len(t, s.flips, 2, "%s after %v s, cv %v", name, good, cv)
			}
		}
	}
}

// A pause of a tenth of a second, or one call that waits for a model to be loaded, is no catastrophe.
func TestScoreHiccups(t *testing.T) {
	t.Parallel()
	s := newServer()
	s.serve(60, 40, 1, 0.3)
	s.serve(0.25, 40, 20, 0.3)
	for range 30 {
		s.serve(1, 40, 1, 0.3)
		require.Greater(t, s.s.Value(), 0.2)
	}
	for range 30 {
		s.v.Success(200)
		s.serve(10, 40, 1, 0.3)
		require.Greater(t, s.s.Value(), 0.85)
	}
	assert.Empty(t, s.flips)
}

func TestScoreMemoryOrConnectionsAloneCondemnNobody(t *testing.T) {
	t.Parallel()
	for name, load := range map[string]LoadView{
		"memory":      {MemoryFree: 0},
		"connections": {MemoryFree: 1, Connections: 600},
		"own calls":   {MemoryFree: 1, ConnectionsAt: -1, OwnInFlight: 600},
		"both":        {MemoryFree: 0, Connections: 1e9},
		"one":         {MemoryFreeAt: -1, Connections: 600},
	} {
		for _, rate := range []int{0, 40} {
			s := newServer()
			s.load = load
			s.serve(60, rate, 1, 0.8)
			assert.True(t, s.s.Healthy(), "%s at %d calls a second: %v", name, rate, s.s.Value())
		}
	}
}

// A server that is given no calls any more gets another chance, even if its memory is full, as that of a server of models is.
func TestScoreForgetsWhatIsStale(t *testing.T) {
	t.Parallel()
	s := newServer()
	s.load = LoadView{Connections: 600}
	s.serve(60, 40, 1, 0.8)
	s.fail(20, 40)
	require.False(t, s.s.Healthy())
	s.run(4.5, 0, nil)
	require.False(t, s.s.Healthy())
	require.True(t, s.s.Parts().Errors.Known)
	s.run(1, 0, nil)
	assert.True(t, s.s.Healthy())
	assert.Equal(t, Parts{GPUMemory: known(0), Connections: known(0)}, s.s.Parts())

	s.serve(1, 40, 1, 0.8)
	assert.Equal(t, known(1), s.s.Parts().Errors, "failures of before count no more")

	s.run(6, 0, nil)
	s.load.MemoryFreeAt, s.load.ConnectionsAt = -1, -1
	s.load.OwnInFlight = -1
	s.update()
	assert.Equal(t, Parts{}, s.s.Parts())
	assert.Equal(t, 1.0, s.s.Value())
}

func TestScoreStaleAfter(t *testing.T) {
	t.Parallel()
	c := DefaultConfig()
	for age, want := range map[time.Duration]bool{
		0: true, 5 * time.Second: true, 5*time.Second + 1: false, time.Hour: false,
		-time.Second: true, // reported while the update was on its way
	} {
		var s Score
		now := int64(2 * time.Hour)
		at := now - int64(age)
		s.Update(now, &c, new(Vitals), LoadView{MemoryFree: 0.25, MemoryFreeAt: at, Connections: 350, ConnectionsAt: at})
		p := s.Parts()
		assert.Equal(t, want, p.GPUMemory.Known, age)
		if want {
			assert.Equal(t, known(0.25), p.GPUMemory)
			assert.Equal(t, known(0.5), p.Connections)
		} else {
			assert.Equal(t, known(1), p.Connections, "own calls stand in")
		}
	}
}

func TestScoreNeedsSomeCalls(t *testing.T) {
	t.Parallel()
	s := newServer()
	for range 4 {
		s.v.Failure()
	}
	s.update()
	assert.False(t, s.s.Parts().Errors.Known)
	s.v.Served()
	s.update()
	assert.InDelta(t, 0.2, s.s.Parts().Errors.Value, 1e-12)
	for range 19 {
		s.v.Success(1)
	}
	s.update()
	assert.False(t, s.s.Parts().Latency.Known)
	s.v.Success(1)
	s.update()
	assert.Equal(t, known(1), s.s.Parts().Latency)
	assert.InDelta(t, 21.0/25, s.s.Parts().Errors.Value, 1e-12)
}

func TestScoreConnections(t *testing.T) {
	t.Parallel()
	c := DefaultConfig()
	for n, want := range map[float64]float64{0: 1, 100: 1, 101: 0.998, 350: 0.5, 599: 0.002, 600: 0, 1e300: 0} {
		var s Score
		s.Update(second, &c, new(Vitals), LoadView{Connections: n, ConnectionsAt: second})
		assert.InDelta(t, want, s.Parts().Connections.Value, 1e-9, n)
	}
}

// Memory and connections are smoothed by the time that has passed, not by the number of updates.
func TestScoreSmooths(t *testing.T) {
	t.Parallel()
	for _, steps := range []int{1, 10, 1000} {
		s := newServer()
		s.load.Connections = 100
		s.update()
		s.load.MemoryFree, s.load.Connections = 0, 600
		for range steps {
			s.now += 5 * second / int64(steps)
			s.update()
		}
		assert.InDelta(t, math.Exp(-1), s.s.Parts().GPUMemory.Value, 1e-9)
		assert.InDelta(t, math.Exp(-1), s.s.Parts().Connections.Value, 1e-9)

		s.load.ConnectionsAt = -1
		s.load.OwnInFlight = 350
		s.update()
		assert.InDelta(t, 0.5, s.s.Parts().Connections.Value, 1e-9, "what others do is not averaged with what we do")
	}
}

// The more calls fail, and the slower they are, the lower the score.
func TestScoreFollowsCalls(t *testing.T) {
	t.Parallel()
	last := 2.0
	for _, failing := range []int{0, 4, 10, 20, 30, 36, 40} {
		s := newServer()
		s.serve(60, 40, 1, 0.8)
		s.run(20, 40, func() {
			if s.rand.IntN(40) < failing {
				s.v.Failure()
			} else {
				s.v.Success(lognormal(s.rand, 0.8))
			}
		})
		assert.Less(t, s.s.Value(), last, "%d of 40 fail", failing)
		last = s.s.Value()
	}
	last = 2.0
	for _, factor := range []float64{0.5, 2, 4, 8, 16, 32} {
		s := newServer()
		s.serve(60, 40, 1, 0.8)
		s.serve(20, 40, factor, 0.8)
		assert.Less(t, s.s.Value(), last, "%v times as slow", factor)
		last = s.s.Value()
	}
}

func TestScoreDwells(t *testing.T) {
	t.Parallel()
	r, flips := newRand(1), 0
	for range 50 {
		s := newServer()
		s.c.MinDwell = time.Duration(r.Int64N(10 * second))
		s.c.StaleAfter = time.Duration(1 + r.Int64N(5*second))
		began := s.now + second/4 // the first update
		for range 200 {
			switch r.IntN(3) {
			case 0:
				s.fail(0.25, 400)
			case 1:
				s.serve(0.25, 400, 1, 0.3)
			default:
				s.run(0.25*float64(r.IntN(40)), 0, nil)
			}
		}
		flips += len(s.flips)
		for _, at := range s.flips {
			require.GreaterOrEqual(t, at-began, int64(s.c.MinDwell))
			began = at
		}
	}
	assert.Greater(t, flips, 500)
}

func TestScoreHysteresis(t *testing.T) {
	t.Parallel()
	c := DefaultConfig()
	var s Score
	s.started = true
	now := int64(0)
	judge := func(value float64) bool {
		now += int64(c.MinDwell)
		if !s.judge(now, &c, value, true) {
			return false
		}
		assert.False(t, s.judge(now+int64(c.MinDwell)-1, &c, 1-value, true), "within the dwell")
		return true
	}
	assert.False(t, judge(0.3))
	assert.False(t, judge(0.2))
	assert.True(t, judge(0.199))
	assert.False(t, s.Healthy())
	assert.False(t, judge(0.3))
	assert.False(t, judge(0.399))
	assert.True(t, judge(0.4))
	assert.True(t, s.Healthy())
}

// Whatever comes in, the score and its parts are numbers from 0 to 1.
func TestScoreTakesAnything(t *testing.T) {
	t.Parallel()
	r := newRand(1)
	odd := []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 0, 5e-324, 0.5, 1, 2, 1e300, math.MaxFloat64}
	times := []int64{math.MinInt64, -1, 0, 1, second, time.Hour.Nanoseconds(), math.MaxInt64}
	for range 200 {
		s := newServer()
		for range 100 {
			for range r.IntN(40) {
				s.v.Success(odd[r.IntN(len(odd))])
			}
			for range r.IntN(4) {
				s.v.Failure()
			}
			s.now += r.Int64N(10*second) - second
			s.s.Update(s.now, &s.c, &s.v, LoadView{
				MemoryFree: odd[r.IntN(len(odd))], MemoryFreeAt: times[r.IntN(len(times))],
				Connections: odd[r.IntN(len(odd))], ConnectionsAt: times[r.IntN(len(times))],
				OwnInFlight: []int{math.MinInt, -1, 0, 300, math.MaxInt}[r.IntN(5)],
			})
			p := s.s.Parts()
			for _, x := range []float64{s.s.Value(), p.Errors.Value, p.Latency.Value, p.GPUMemory.Value, p.Connections.Value} {
				require.True(t, x >= 0 && x <= 1, "%v of %+v", x, p)
			}
		}
	}
}

func TestScoreBesideLatency(t *testing.T) {
	t.Parallel()
	s := newServer()
	assert.Equal(t, 1.0, s.s.ValueBesideLatency())
	s.serve(60, 40, 1, 0.8)
	s.serve(20, 40, 32, 0.8)
	assert.Less(t, s.s.Value(), 0.5)
	assert.Equal(t, 1.0, s.s.ValueBesideLatency())
	s.fail(10, 40)
	assert.Less(t, s.s.ValueBesideLatency(), 0.5)
	s.s.Reset(s.now)
	assert.Equal(t, 1.0, s.s.ValueBesideLatency())
}

func TestScoreReset(t *testing.T) {
	t.Parallel()
	s := newServer()
	s.serve(30, 40, 1, 0.8)
	s.fail(30, 40)
	require.False(t, s.s.Healthy())
	s.s.Reset(s.now)
	assert.True(t, s.s.Healthy())
	assert.Equal(t, 1.0, s.s.Value())
	assert.Equal(t, Parts{}, s.s.Parts())
	for range 100 {
		s.v.Failure() // of the server before
	}
	s.now += second
	s.update()
	assert.Equal(t, Parts{GPUMemory: known(1), Connections: known(1)}, s.s.Parts())
	s.fail(1.75, 40)
	assert.True(t, s.s.Healthy(), "within the dwell of the reset")
	assert.Zero(t, s.s.Value())
	s.fail(1, 40)
	assert.False(t, s.s.Healthy())
}

// The counts of Vitals wrap around.
func TestScoreReadsCountsThatWrap(t *testing.T) {
	t.Parallel()
	s := newServer()
	s.v.failures.Store(math.MaxUint32 - 5)
	s.s.Reset(s.now)
	s.update()
	s.now += second
	for range 10 {
		s.v.Failure()
	}
	s.update()
	assert.Equal(t, known(0), s.s.Parts().Errors)
	assert.InDelta(t, 10, s.s.calls.failures, 1e-9)
}

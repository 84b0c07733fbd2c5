package picker

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mlbalancer/mlbalancer/breaker"
	"github.com/mlbalancer/mlbalancer/health"
)

// sayings is a Judge of nothing.
type sayings struct{}

func (sayings) Now() int64            { return 0 }
func (sayings) InBand(string) Outcome { return ModelFault }

// streams is one endpoint and the streams on it.
type streams struct {
	t     testing.TB
	guard *Guard
	table *Table
	now   int64
}

func newStreams(t testing.TB) *streams {
	c := breaker.DefaultConfig()
	c.MaxEjectionPercent = 100
	g := NewGuard(c, rand.Uint64)
	members, status := fleet(1)
	g.Group.Set(1, []*breaker.Breaker{members[0].Breaker()})
	plan := planOf(Defaults("p2c"))
	plan.Guard = g
	return &streams{t, g, NewTable(nil, plan, members, status, rand.Uint64), int64(time.Hour)}
}

func (s *streams) endpoint() *Endpoint { return s.table.Member(0).Endpoint }

// admits reports whether a call for the model may be sent to the endpoint now.
func (s *streams) admits(e *Endpoint, model string) bool {
	return s.guard.admits(e, &Query{Key: Key(model), Now: s.now})
}

// stream is one stream on its way.
type stream struct {
	*streams
	Attempt
	responses Responses
}

func (s *streams) open(model string, answers bool) *stream {
	st := &stream{streams: s}
	st.responses.Answers = answers
	q := Query{Request: Request{ModelID: model}, Key: Key(model), Now: s.now, Stream: true}
	require.Equal(s.t, 0, s.table.Place(&q, 0, &st.Attempt).Index)
	st.Report(&st.responses, sayings{})
	return st
}

func (s *stream) receive(model string, o Outcome) { s.responses.Received(s.now, 0, model, o) }
func (s *stream) end(o Outcome)                   { s.End(s.now, o, 0, false) }

func (s *streams) after(d time.Duration) { s.now += int64(d) }

func (s *streams) pair(model string) *breaker.Pair {
	if m := s.endpoint().models.get(Key(model)); m != nil {
		return m.pair.Load()
	}
	return nil
}

func (s *streams) counts() breaker.Counts { return s.endpoint().Breaker().Counts() }

func TestResponsesFirstIsTheLatency(t *testing.T) {
	for _, answers := range []bool{false, true} {
		s := newStreams(t)
		st := s.open("m", answers)
		s.after(30 * time.Millisecond)
		st.receive("m", Success)
		s.after(time.Minute)
		st.receive("m", Success)
		st.end(Success)
		assert.EqualValues(t, 30*time.Millisecond, s.endpoint().Latency())
		assert.Equal(t, 30*time.Millisecond, s.endpoint().Service(Key("m")))
		assert.Zero(t, s.endpoint().InFlight())
	}
}

// A stream that is opened long before it is used was not slow.
func TestResponsesLatencyCountsFromTheFirstMessage(t *testing.T) {
	s := newStreams(t)
	st := s.open("m", true)
	s.after(time.Minute)
	st.responses.Received(s.now, 5*time.Millisecond, "m", Success)
	assert.EqualValues(t, 5*time.Millisecond, s.endpoint().Latency())
	st.end(Success)

	st = s.open("m", true)
	s.after(2 * time.Millisecond)
	st.responses.Received(s.now, time.Minute, "m", Success)
	assert.Less(t, s.endpoint().Service(Key("m")), 5*time.Millisecond, "nor was one that waited for a place")
	st.end(Success)
}

func TestResponsesEndIsOneVote(t *testing.T) {
	for _, answers := range []bool{false, true} {
		for o, want := range map[Outcome]breaker.Counts{
			Success: {Calls: 1}, Failure: {Calls: 1, Failures: 1}, Cancelled: {}, Overload: {}, CallerFault: {},
		} {
			s := newStreams(t)
			st := s.open("m", answers)
			for range 20 {
				s.after(time.Second)
				st.receive("m", Success)
			}
			assert.Zero(t, s.counts(), "nothing before its end")
			assert.Equal(t, 1, s.endpoint().InFlight())
			st.end(o)
			assert.Equal(t, want, s.counts(), "%v, answers %v", o, answers)
			assert.Zero(t, s.endpoint().InFlight())
		}
	}
}

func TestResponsesNoneIsNoSuccess(t *testing.T) {
	s := newStreams(t)
	s.open("m", true).end(Success)
	s.open("m", false).end(Success)
	assert.Zero(t, s.counts())
	assert.Zero(t, s.endpoint().Latency())
}

// Failing before the first response must not make an endpoint look fast.
func TestResponsesFailureBeforeTheFirst(t *testing.T) {
	s := newStreams(t)
	st := s.open("m", true)
	s.after(time.Hour) // it lay idle
	st.end(Failure)
	assert.EqualValues(t, minFailureLatency, s.endpoint().Latency())
	st = s.open("m", true)
	st.receive("m", Success)
	was := s.endpoint().Latency()
	s.after(time.Hour)
	st.end(Failure)
	assert.Equal(t, was, s.endpoint().Latency(), "its latency is known")
}

// Faults of one model open its breaker and no other, within one stream.
func TestResponsesAnswersAreVotesOfTheModel(t *testing.T) {
	s := newStreams(t)
	st := s.open("m", true)
	for range 4 {
		st.receive("m", ModelFault)
		st.receive("n", Success)
	}
	require.NotNil(t, s.pair("m"))
	assert.Equal(t, breaker.Closed, s.pair("m").State())
	st.receive("m", ModelFault)
	assert.Equal(t, breaker.Open, s.pair("m").State())
	assert.Nil(t, s.pair("n"), "nothing against it")
	assert.Zero(t, s.counts(), "one model is not the endpoint")
	assert.False(t, s.admits(s.endpoint(), "m"))
	assert.True(t, s.admits(s.endpoint(), "n"))

	st.end(Success)
	assert.Equal(t, breaker.Counts{Calls: 1}, s.counts())
	assert.Equal(t, breaker.Open, s.pair("m").State(), "the end is no vote for it")
}

func TestResponsesSuccessEndsARowOfFaults(t *testing.T) {
	s := newStreams(t)
	st := s.open("m", true)
	for range 4 {
		for range 4 {
			st.receive("m", ModelFault)
		}
		for range 12 {
			st.receive("m", Success)
		}
	}
	assert.Equal(t, breaker.Closed, s.pair("m").State())
	st.end(Success)
}

// Faults of two models are the endpoint's.
func TestResponsesFaultsOfTwoModels(t *testing.T) {
	s := newStreams(t)
	st := s.open("m", true)
	st.receive("m", ModelFault)
	assert.Zero(t, s.counts())
	for range 5 {
		st.receive("n", ModelFault)
	}
	assert.Equal(t, breaker.Open, s.endpoint().Breaker().State())
	st.end(Success)
}

func TestResponsesModel(t *testing.T) {
	s := newStreams(t)
	st := s.open("m:2", true)
	for range 5 {
		st.receive("m", ModelFault) // the version goes with the name
	}
	assert.Equal(t, breaker.Open, s.pair("m:2").State())
	assert.Nil(t, s.pair("m"))
	st.end(Success)

	s = newStreams(t)
	st = s.open("n", true)
	for range 5 {
		st.receive("", ModelFault) // a server that does not say
	}
	assert.Equal(t, breaker.Open, s.pair("n").State())
	st.end(Success)

	s = newStreams(t)
	st = s.open("", true) // and a stream that did not
	for range 5 {
		st.receive("o", ModelFault)
	}
	assert.Equal(t, breaker.Open, s.pair("o").State())
	st.end(Success)
}

func TestResponsesWithoutPerModel(t *testing.T) {
	s := newStreams(t)
	s.guard.SetPerModel(false)
	st := s.open("m", true)
	for range 5 {
		st.receive("m", ModelFault)
	}
	assert.Nil(t, s.pair("m"))
	assert.Equal(t, breaker.Open, s.endpoint().Breaker().State())
	st.end(Success)
}

func TestResponsesRefusals(t *testing.T) {
	s := newStreams(t)
	e := s.endpoint()
	st := s.open("m", true)
	st.receive("n", Misplaced)
	assert.False(t, s.admits(e, "n"))
	assert.True(t, s.admits(e, "m"))
	st.receive("n", Success)
	assert.True(t, s.admits(e, "n"), "it was found after all")

	load := e.loadAt(s.now)
	st.receive("m", Overload)
	assert.Equal(t, load+pressure, e.loadAt(s.now))
	st.receive("m", CallerFault)
	assert.Nil(t, s.pair("m"))
	assert.False(t, e.Draining(s.now))
	st.receive("m", Draining)
	assert.True(t, e.Draining(s.now))
	st.end(Success)
}

// A server that stops loses the models which a stream still uses, however long ago it began.
func TestResponsesLosingTwoModelsIsDraining(t *testing.T) {
	s := newStreams(t)
	st := s.open("m", true)
	for range 100 {
		st.receive("m", Success)
		st.receive("n", Success)
		s.after(time.Second)
	}
	st.receive("m", Misplaced)
	assert.False(t, s.endpoint().Draining(s.now))
	st.receive("n", Misplaced)
	assert.True(t, s.endpoint().Draining(s.now))
	st.end(Success)
}

// A server that names all that it holds may drop two models and be called for the others.
func TestLosingTwoModelsOfAListIsNotDraining(t *testing.T) {
	s := newStreams(t)
	s.guard.Report(s.endpoint(), 0, s.now, &health.Report{Models: models(health.ModelReady, "m", "n", "o"), Complete: true})
	st := s.open("m", true)
	for _, m := range []string{"m", "n"} {
		st.receive(m, Success)
		st.receive(m, Misplaced)
	}
	assert.False(t, s.endpoint().Draining(s.now))
	st.end(Success)
}

// Responses of other streams than of answers say nothing of themselves.
func TestResponsesThatAreNoAnswers(t *testing.T) {
	s := newStreams(t)
	st := s.open("m", false)
	for range 10 {
		st.receive("m", ModelFault)
	}
	assert.Nil(t, s.pair("m"))
	assert.False(t, st.responses.Counts())
	st.end(ModelFault)
	assert.NotNil(t, s.pair("m"), "its end is a vote for the model")
}

// tripped returns streams on an endpoint whose breaker is due for probes.
func tripped(t *testing.T) *streams {
	s := newStreams(t)
	for range 5 {
		s.open("m", true).end(Failure)
	}
	require.Equal(t, breaker.Open, s.endpoint().Breaker().State())
	s.after(2 * time.Second)
	return s
}

// A stream that goes on for longer than a probe may take is a good probe once it has answered.
func TestResponsesEndAProbe(t *testing.T) {
	for _, answers := range []bool{false, true} {
		s := tripped(t)
		var all []*stream
		for range 3 {
			st := s.open("m", answers)
			require.Equal(t, Probe, st.Reason())
			st.receive("m", Success)
			all = append(all, st)
		}
		b := s.endpoint().Breaker()
		assert.Equal(t, breaker.Closed, b.State())
		s.after(time.Minute)
		s.guard.Watch(s.table, s.now)
		assert.Equal(t, breaker.Closed, b.State())
		for _, st := range all {
			st.end(Success)
		}
		assert.Zero(t, s.counts(), "their success has counted")
	}
}

// One that fails after it answered has failed all the same.
func TestResponsesProbeThatFailsLater(t *testing.T) {
	s := tripped(t)
	st := s.open("m", true)
	require.Equal(t, Probe, st.Reason())
	st.receive("m", Success)
	require.Equal(t, breaker.HalfOpen, s.endpoint().Breaker().State())
	st.end(Failure)
	assert.Equal(t, breaker.Open, s.endpoint().Breaker().State())
}

// A probe without an answer cannot hold the breaker.
func TestResponsesProbeThatHangs(t *testing.T) {
	s := tripped(t)
	st := s.open("m", true)
	require.Equal(t, Probe, st.Reason())
	s.after(2 * time.Second)
	s.guard.Watch(s.table, s.now)
	assert.Equal(t, breaker.Open, s.endpoint().Breaker().State())
	st.end(Success)
	s.after(10 * time.Second)
	assert.True(t, s.endpoint().open(s.now))
}

func TestResponsesEndAProbeOfTheModel(t *testing.T) {
	for _, answers := range []bool{false, true} {
		s := newStreams(t)
		for range 5 {
			s.open("m", answers).end(ModelFault)
		}
		require.Equal(t, breaker.Open, s.pair("m").State())
		s.after(2 * time.Second)
		for range 3 {
			st := s.open("m", answers)
			require.Equal(t, Probe, st.Reason())
			st.receive("m", Success)
			defer st.end(Success)
		}
		s.after(time.Minute)
		s.guard.Watch(s.table, s.now)
		require.NotNil(t, s.pair("m"))
		assert.Equal(t, breaker.Closed, s.pair("m").State(), "answers %v", answers)
	}
}

// A stream is never counted as slow, but one whose deadline passes without a response is held against an endpoint that had the time.
func TestStreamSlowTime(t *testing.T) {
	s := newStreams(t)
	q := Query{Request: Request{ModelID: "m"}, Key: Key("m"), Now: s.now, Stream: true}
	var a Attempt
	require.Equal(t, 0, s.table.Place(&q, s.now+int64(time.Second), &a).Index)
	assert.Equal(t, 800*time.Millisecond, a.Slow())
	s.after(time.Minute)
	s.guard.Watch(s.table, s.now)
	assert.Zero(t, s.counts().Late)
	assert.Zero(t, s.counts().Slow)
	a.End(s.now, Success, 0, false)
	assert.Equal(t, breaker.Counts{Calls: 1}, s.counts())
}

func TestResponsesWithoutPolicy(t *testing.T) {
	var r Responses
	assert.Nil(t, r.Judge())
	assert.False(t, r.Counts())
	r.Received(1, 0, "m", ModelFault)
}

func TestResponsesWithoutGuard(t *testing.T) {
	s := &streams{t, nil, readyTable(Defaults("p2c"), rand.Uint64, 1), int64(time.Hour)}
	st := s.open("m", true)
	s.after(time.Second)
	st.receive("m", Success)
	st.receive("m", ModelFault)
	st.end(Failure)
	assert.EqualValues(t, time.Second, s.endpoint().Latency())
	assert.Zero(t, s.endpoint().InFlight())
}

func TestResponsesDoNotAllocate(t *testing.T) {
	s := newStreams(t)
	st := s.open("m", true)
	for range 3 { // what is new of the models
		st.receive("m", ModelFault)
		st.receive("n", Success)
		st.receive("m", Success)
	}
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		s.after(time.Second)
		st.receive("m", Success)
		st.receive("n", Success)
		st.receive("n", Misplaced)
	}))
	st.end(Success)
}

func BenchmarkReceived(b *testing.B) {
	s := newStreams(b)
	st := s.open("m", true)
	b.ReportAllocs()
	for b.Loop() {
		st.receive("m", Success)
	}
}

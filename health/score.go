package health

import (
	"encoding/json"
	"math"
	"sync/atomic"
	"time"
)

// Score is how well an endpoint does, from 0 to 1, and whether that is well enough to be given calls. It is the weighted mean of
// those of its parts that are known, times the lesser of the errors and the latency part over 0.25 where that is less than 1: an
// endpoint that fails everything, or takes 20 times as long as usual, scores next to nothing however much free memory it has.
// Where nothing is known it is 1.
//
// An endpoint becomes unhealthy when its score falls below Config.EnterUnhealthy, and healthy again when it reaches
// Config.LeaveUnhealthy, or when nothing is known any more of its calls: what condemned it is forgotten, and memory and
// connections alone condemn nobody. (An unhealthy endpoint has few calls, and one whose memory is full of models, which is as
// it should be, would otherwise never get any again.)
//
// The zero value is a healthy endpoint with a score of 1. A Score must not be copied. Update and Reset are called from one
// goroutine at a time, the other methods from any.
type Score struct {
	lack      atomic.Uint64    // float64: what the score lacks of 1
	rest      atomic.Uint64    // float64: what it would without the latency part
	parts     [4]atomic.Uint64 // float64: each of Parts plus 1; 0 if it is not known
	unhealthy atomic.Bool

	started   bool
	updatedAt int64
	changedAt int64 // healthy or unhealthy since then

	calls       calls
	memory      average
	connections average
	reported    bool // connections is of numbers that the server reports, not of our own calls
}

// LoadView is what is known of an endpoint's load beside its calls. Numbers that are negative, NaN or infinite are not known.
type LoadView struct {
	// MemoryFree is the share of the GPUs' memory that is free, from 0 to 1; more than 1 counts as 1.
	MemoryFree float64
	// MemoryFreeAt is when MemoryFree was reported, on the clock of Update, in nanoseconds; 0 if never.
	MemoryFreeAt int64
	// Connections is the number of calls that are open on the server.
	Connections float64
	// ConnectionsAt is when Connections was reported, on the clock of Update, in nanoseconds; 0 if never.
	ConnectionsAt int64
	// OwnInFlight is the number of our own calls in flight. It stands in for Connections that are not known or stale.
	OwnInFlight int
}

// Part is one part of a Score.
type Part struct {
	// Value is from 0, the worst, to 1.
	Value float64
	// Known says whether there is such a part: a signal that is missing, stale or of too few calls has none, and Value is 0.
	Known bool
}

// MarshalJSON implements json.Marshaler: a part is its value, and one that is not known is null.
func (p Part) MarshalJSON() ([]byte, error) {
	if !p.Known {
		return []byte("null"), nil
	}
	return json.Marshal(p.Value)
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *Part) UnmarshalJSON(data []byte) error {
	var v *float64
	if err := json.Unmarshal(data, &v); err != nil {
		return err
	}
	*p = Part{}
	if v != nil {
		*p = Part{Value: *v, Known: true}
	}
	return nil
}

// Parts are the parts of a Score. Its JSON form has a number for each part that is known, such as {"errors":1,"gpu_memory":0.4}.
type Parts struct {
	// Errors is the share of the latest calls that did not fail.
	Errors Part `json:"errors,omitzero"`
	// Latency is the 99th percentile that is normal for the endpoint over that of its latest calls, or 1 over their median where
	// that is less, both as multiples of the baseline of their model.
	Latency Part `json:"latency,omitzero"`
	// GPUMemory is the share of the GPUs' memory that is free.
	GPUMemory Part `json:"gpu_memory,omitzero"`
	// Connections is 1 up to 100 open calls, and falls from there to 0 at 600.
	Connections Part `json:"connections,omitzero"`
}

const (
	// scoreMemory is the time constant of everything that a Score averages: some reports of a source that speaks once a second,
	// so that a hiccup is none of the score, and short enough to see within some seconds what lasts. What must be faster is for
	// a breaker.
	scoreMemory = 5 * time.Second

	// pull is the errors or latency part below which the score is pulled down.
	pull = 0.25

	easyConnections = 100
	mostConnections = 600
)

// Value returns the score.
func (s *Score) Value() float64 { return 1 - math.Float64frombits(s.lack.Load()) }

// ValueBesideLatency returns what the score would be without its latency part: it is for those who compare latencies themselves,
// and should not count them twice.
func (s *Score) ValueBesideLatency() float64 { return 1 - math.Float64frombits(s.rest.Load()) }

// Healthy returns whether the endpoint is healthy.
func (s *Score) Healthy() bool { return !s.unhealthy.Load() }

// Parts returns the parts that the score is made of. While an Update runs some may be of before it.
func (s *Score) Parts() Parts {
	var p [len(s.parts)]Part
	for i := range p {
		if v := math.Float64frombits(s.parts[i].Load()); v > 0 {
			p[i] = Part{Value: v - 1, Known: true}
		}
	}
	return Parts{Errors: p[0], Latency: p[1], GPUMemory: p[2], Connections: p[3]}
}

func (s *Score) setParts(p *Parts) {
	for i, part := range [...]Part{p.Errors, p.Latency, p.GPUMemory, p.Connections} {
		v := 0.0
		if part.Known {
			v = 1 + part.Value
		}
		s.parts[i].Store(math.Float64bits(v))
	}
}

// Update brings the score to now, in nanoseconds above 0 on any clock that does not go back, and returns whether Healthy has
// changed. It is to be called about once a second; c is valid, and v always the same.
func (s *Score) Update(now int64, c *Config, v *Vitals, load LoadView) (changed bool) {
	if !s.started {
		s.started, s.updatedAt, s.changedAt = true, now, now
	}
	kept := math.Exp(-float64(max(now-s.updatedAt, 0)) / float64(scoreMemory))
	s.updatedAt = now

	s.calls.update(now, kept, v, c.StaleAfter)
	p := Parts{
		Errors:      s.calls.errorsPart(now, c.StaleAfter),
		Latency:     s.calls.latencyPart(now, kept, c.StaleAfter),
		GPUMemory:   s.memoryPart(now, kept, c.StaleAfter, &load),
		Connections: s.connectionsPart(now, kept, c.StaleAfter, &load),
	}
	value := c.Weights.score(&p)
	s.setParts(&p)
	s.lack.Store(math.Float64bits(1 - value))
	beside := p
	beside.Latency = Part{}
	s.rest.Store(math.Float64bits(1 - c.Weights.score(&beside)))
	return s.judge(now, c, value, p.Errors.Known || p.Latency.Known)
}

// judge makes the endpoint healthy or unhealthy, and returns whether it was not before.
func (s *Score) judge(now int64, c *Config, value float64, callsKnown bool) (changed bool) {
	if now-s.changedAt < int64(c.MinDwell) {
		return false
	}
	unhealthy := s.unhealthy.Load()
	switch {
	case !unhealthy && callsKnown && value < c.EnterUnhealthy:
	case unhealthy && (!callsKnown || value >= c.LeaveUnhealthy):
	default:
		return false
	}
	s.unhealthy.Store(!unhealthy)
	s.changedAt = now
	return true
}

// Reset makes the score that of a server of which nothing is known as of now: it is 1 and healthy. Calls that end before the next
// Update are not counted.
func (s *Score) Reset(now int64) {
	s.started, s.updatedAt, s.changedAt = true, now, now
	s.calls.reset()
	s.memory, s.connections = average{}, average{}
	s.setParts(&Parts{})
	s.lack.Store(0)
	s.rest.Store(0)
	s.unhealthy.Store(false)
}

func (s *Score) memoryPart(now int64, kept float64, staleAfter time.Duration, load *LoadView) Part {
	if !fresh(now, load.MemoryFreeAt, staleAfter) || !usable(load.MemoryFree) {
		s.memory = average{}
		return Part{}
	}
	return Part{Value: s.memory.add(min(load.MemoryFree, 1), kept), Known: true}
}

func (s *Score) connectionsPart(now int64, kept float64, staleAfter time.Duration, load *LoadView) Part {
	n, reported := load.Connections, fresh(now, load.ConnectionsAt, staleAfter) && usable(load.Connections)
	if !reported {
		n = float64(load.OwnInFlight)
	}
	if reported != s.reported || !usable(n) { // all clients' calls and our own are not to be averaged
		s.connections, s.reported = average{}, reported
	}
	if !usable(n) {
		return Part{}
	}
	over := s.connections.add(n, kept) - easyConnections
	return Part{Value: 1 - min(max(over/(mostConnections-easyConnections), 0), 1), Known: true}
}

// score returns the score that p makes.
func (w *Weights) score(p *Parts) float64 {
	sum, weights, factor := 0.0, 0.0, 1.0
	for _, x := range [...]struct {
		part   Part
		weight float64
		pulls  bool
	}{
		{p.Errors, w.Errors, true},
		{p.Latency, w.Latency, true},
		{p.GPUMemory, w.GPUMemory, false},
		{p.Connections, w.Connections, false},
	} {
		if !x.part.Known || x.weight == 0 {
			continue
		}
		sum += x.weight * x.part.Value
		weights += x.weight
		if x.pulls {
			factor = min(factor, x.part.Value/pull)
		}
	}
	if weights == 0 {
		return 1
	}
	return min(sum/weights, 1) * factor
}

// fresh returns whether a signal of the time at exists and counts.
func fresh(now, at int64, staleAfter time.Duration) bool {
	return at > 0 && now-at <= int64(staleAfter)
}

// usable returns whether x is a number from 0 up.
func usable(x float64) bool { return x >= 0 && x <= math.MaxFloat64 }

// average is an exponentially weighted moving average. The zero value has no value yet: the first is taken as it is.
type average struct {
	value float64
	known bool
}

// add takes in x, keeps the part kept of what was before, and returns the average.
func (a *average) add(x, kept float64) float64 {
	if !a.known {
		*a = average{value: x, known: true}
	} else {
		a.value = x + (a.value-x)*kept
	}
	return a.value
}

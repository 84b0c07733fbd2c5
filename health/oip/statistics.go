package oip

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/mlbalancer/mlbalancer/health"
)

// maxMean bounds what a mean time is believed to be.
const maxMean = time.Hour

// timing is a StatisticDuration: a count, and the nanoseconds that it took together.
type timing struct{ count, ns uint64 }

// counters are what is read of an InferStatistics. Servers only ever count up.
type counters struct {
	success timing
	queue   timing
	input   timing
	infer   timing
	output  timing
}

// all returns the counters, so that they can be gone through.
func (c *counters) all() [5]*timing {
	return [...]*timing{&c.success, &c.queue, &c.input, &c.infer, &c.output}
}

// since returns how much the counters have grown, and false if one went back: then they have started anew.
func (c counters) since(last counters) (growth counters, ok bool) {
	was, is := last.all(), growth.all()
	for i, now := range c.all() {
		if now.count < was[i].count || now.ns < was[i].ns {
			return counters{}, false
		}
		*is[i] = timing{count: now.count - was[i].count, ns: now.ns - was[i].ns}
	}
	return growth, true
}

func (c *counters) add(growth counters) {
	more := growth.all()
	for i, sum := range c.all() {
		sum.count += more[i].count
		sum.ns += more[i].ns
	}
}

// service is the mean time that a request was computed.
func (c *counters) service() time.Duration {
	return mean(timing{count: c.success.count, ns: c.input.ns + c.infer.ns + c.output.ns})
}

// mean is 0 if nothing was counted.
func mean(t timing) time.Duration {
	if t.count == 0 {
		return 0
	}
	return time.Duration(min(t.ns/t.count, uint64(maxMean)))
}

// statistics reads ModelStatisticsResponse{repeated ModelStatistics model_stats = 1}: all models that are ready, and what they
// counted.
type statistics struct {
	table
	queue timing // how long the requests since the list before have waited
}

// read implements response.
func (s *statistics) read(msg []byte) error {
	s.begin()
	defer s.end()
	s.queue = timing{}
	f := fields{rest: msg}
	for f.next() {
		if !f.is(1, protowire.BytesType) {
			continue
		}
		if err := s.readModel(f.bytes); err != nil {
			return fmt.Errorf("model_stats: %w", err)
		}
	}
	for _, m := range s.listed {
		if service := m.growth.service(); service > 0 {
			m.service = service
		}
	}
	return f.err
}

// readModel reads ModelStatistics{name = 1, version = 2, InferStatistics inference_stats = 6}.
func (s *statistics) readModel(msg []byte) error {
	var name, version []byte
	var now counters
	f := fields{rest: msg}
	for f.next() {
		switch {
		case f.is(1, protowire.BytesType):
			name = f.bytes
		case f.is(2, protowire.BytesType):
			version = f.bytes
		case f.is(6, protowire.BytesType):
			if err := now.read(f.bytes); err != nil {
				return fmt.Errorf("inference_stats: %w", err)
			}
		}
	}
	if f.err != nil {
		return f.err
	}
	if whole, own := s.add(name, version); own != nil {
		s.count(whole, own, now)
	}
	return nil
}

// count takes over what an entry of the list has counted until now. Counters that are new, or have gone back, are where growth
// is counted from.
func (s *statistics) count(whole, own *model, now counters) {
	whole.state, own.state = health.ModelReady, health.ModelReady
	if own.entry == s.list {
		return // a second entry of the same version
	}
	known := own.entry != 0
	growth, ok := now.since(own.last)
	own.entry, own.last = s.list, now
	if !known || !ok {
		return
	}
	own.growth.add(growth)
	if whole != own {
		whole.growth.add(growth)
	}
	s.queue.count += growth.queue.count
	s.queue.ns += growth.queue.ns
}

// read reads InferStatistics{StatisticDuration success = 1, queue = 3, compute_input = 4, compute_infer = 5, compute_output = 6}.
func (c *counters) read(msg []byte) error {
	f := fields{rest: msg}
	for f.next() {
		if f.typ != protowire.BytesType {
			continue
		}
		var t *timing
		switch f.num {
		case 1:
			t = &c.success
		case 3:
			t = &c.queue
		case 4:
			t = &c.input
		case 5:
			t = &c.infer
		case 6:
			t = &c.output
		default:
			continue
		}
		if err := t.read(f.bytes); err != nil {
			return fmt.Errorf("field %d: %w", f.num, err)
		}
	}
	return f.err
}

// read reads StatisticDuration{uint64 count = 1, ns = 2}.
func (t *timing) read(msg []byte) error {
	f := fields{rest: msg}
	for f.next() {
		switch {
		case f.is(1, protowire.VarintType):
			t.count = f.number
		case f.is(2, protowire.VarintType):
			t.ns = f.number
		}
	}
	return f.err
}

// fill adds the list and the delay of the server's queues to a report.
func (s *statistics) fill(r *health.Report) {
	s.table.fill(r)
	if s.queue.count > 0 {
		r.Load.Has |= health.HasQueueDelay
		r.Load.QueueDelay = mean(s.queue)
	}
}

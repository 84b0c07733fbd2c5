package sim

import (
	"math/rand/v2"
	"time"
)

// server is one simulated server: workers behind one run queue, here, and memory for a few models, in memory.go. Time is told to
// it; what it will do by itself it puts on the fleet's agenda.
type server struct {
	fleet *Fleet
	index int32

	slow   float64 // how much longer than normal what starts now takes
	up     bool    // it is a member of the fleet
	hollow bool    // it fails all calls at once
	broken int32   // the model that fails here; -1 for none

	busy  int
	queue calls

	slots    int
	occupied int
	models   []*model // those in memory, being loaded, or waited for; by model, nil for the rest
	present  []*model // those in models that take memory
	lane     []*model // models to load: the first has the lane, the others wait for it
	loading  bool     // whether the first one's load runs; otherwise it waits for memory
	loadEnds time.Duration
	waits    int // calls that wait for a load
	uses     uint64
	draws    *rand.Rand // of the times of loads
	gauges
}

// submit takes a call in.
func (s *server) submit(now time.Duration, c *Call) {
	if s.hollow || c.Model == s.broken {
		c.stage, c.outcome = stageFailing, OutcomeFailure
		if !s.hollow {
			c.outcome = OutcomeModelFault
		}
		s.fleet.agenda.add(event{at: now + failTime, kind: eventFailed, index: s.index, call: c, epoch: c.epoch})
		return
	}
	m := s.model(c.Model)
	s.touch(m)
	if m.state != resident {
		c.stage, c.cold, c.held = stageWaiting, true, m
		m.waiting.push(c)
		s.waits++
		s.want(now, m)
		return
	}
	s.enqueue(now, c, m)
	s.dispatch(now)
}

// failTime is how long a broken server takes to fail a call.
const failTime = time.Millisecond

// enqueue puts a call whose model is resident at the end of the run queue.
func (s *server) enqueue(now time.Duration, c *Call, m *model) {
	c.stage, c.queuedAt, c.held = stageQueued, now, m
	m.holds++
	s.queue.push(c)
}

// dispatch gives free workers to the calls at the head of the queue.
func (s *server) dispatch(now time.Duration) {
	for s.busy < s.fleet.Workers && s.queue.n > 0 {
		c := s.queue.pop()
		c.stage, c.ran = stageRunning, now
		s.occupy(now, 1)
		took := time.Duration(float64(c.Work) * s.slow)
		s.fleet.agenda.add(event{at: now + took, kind: eventServed, index: s.index, call: c, epoch: c.epoch})
	}
}

// occupy changes the number of busy workers.
func (s *server) occupy(now time.Duration, n int) {
	s.gauges.pass(now, s.busy)
	s.busy += n
}

// served ends a call whose work is done.
func (s *server) served(now time.Duration, c *Call) {
	s.occupy(now, -1)
	m := c.held
	m.holds--
	s.touch(m)
	s.observe(c, now)
	s.release(now, m)
	s.dispatch(now)
}

// cancel takes a call out wherever it is.
func (s *server) cancel(now time.Duration, c *Call) {
	m := c.held
	switch c.stage {
	case stageWaiting:
		m.waiting.remove(c)
		s.waits--
		s.unwant(now, m)
	case stageQueued:
		s.queue.remove(c)
		m.holds--
		s.release(now, m)
	case stageRunning:
		s.occupy(now, -1)
		m.holds--
		s.release(now, m)
		s.dispatch(now)
	}
}

// active is the number of calls that a worker works on or that wait for one.
func (s *server) active() int { return s.busy + s.queue.n }

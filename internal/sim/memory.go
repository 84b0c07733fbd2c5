package sim

import (
	"slices"
	"time"
)

// modelState is where a model is between repository and memory.
type modelState uint8

const (
	absent    modelState = iota
	inLane               // its load has begun or will, when the lane and a slot of memory are free
	resident             // in memory, serving
	unloading            // in memory until the calls that it holds are finished
)

// model is one model as a server knows it.
type model struct {
	index   int32
	state   modelState
	pinned  bool   // it is never evicted
	holds   int    // calls in the run queue or on a worker
	used    uint64 // when it was last used: the smallest is evicted first
	usedAt  time.Duration
	waiting calls // for it to become resident
}

func (s *server) model(i int32) *model {
	m := s.models[i]
	if m == nil {
		m = &model{index: i}
		s.models[i] = m
	}
	return m
}

func (s *server) touch(m *model) {
	s.uses++
	m.used, m.usedAt = s.uses, s.fleet.now
}

// place makes a model resident at once, before the start. A pinned one is never evicted.
func (s *server) place(i int32, pinned bool) {
	m := s.model(i)
	m.state, m.pinned = resident, pinned
	s.occupied++
	s.present = append(s.present, m)
	s.touch(m)
}

// want puts a model that somebody waits for into the lane, unless it is there or has yet to leave memory.
func (s *server) want(now time.Duration, m *model) {
	if m.state != absent {
		return
	}
	m.state = inLane
	s.lane = append(s.lane, m)
	s.startLoad(now)
}

// unwant takes a model out of the lane that nobody waits for any more, unless its load has begun.
func (s *server) unwant(now time.Duration, m *model) {
	if m.state != inLane || m.waiting.n > 0 || s.loading && s.lane[0] == m {
		return
	}
	s.lane = slices.DeleteFunc(s.lane, func(l *model) bool { return l == m })
	m.state = absent
	s.startLoad(now)
}

// startLoad begins the load of the first model in the lane if it has not begun and there is memory for it. If there is none, the
// least recently used idle model goes; if none is idle, the least recently used one is told to go when it is.
func (s *server) startLoad(now time.Duration) {
	for len(s.lane) > 0 && !s.loading {
		m := s.lane[0]
		if s.occupied == s.slots {
			v := s.victim()
			if v == nil || s.anyUnloading() {
				return
			}
			v.state = unloading
			s.release(now, v)
			continue
		}
		s.occupied++
		s.present = append(s.present, m)
		s.loading = true
		took := time.Duration(float64(lognormal(s.draws, s.fleet.Load, loadCV)) * s.slow)
		s.loadEnds = now + took
		s.fleet.loadBegins(now)
		s.fleet.agenda.add(event{at: s.loadEnds, kind: eventLoaded, index: s.index})
	}
}

// victim returns the model that is to go next; nil if none may.
func (s *server) victim() *model {
	var idle, lru *model
	for _, m := range s.present {
		if m.state != resident || m.pinned {
			continue
		}
		if lru == nil || m.used < lru.used {
			lru = m
		}
		if m.holds == 0 && (idle == nil || m.used < idle.used) {
			idle = m
		}
	}
	if idle != nil {
		return idle
	}
	return lru
}

func (s *server) anyUnloading() bool {
	for _, m := range s.present {
		if m.state == unloading {
			return true
		}
	}
	return false
}

// loadDone ends the load that has the lane: who waited goes to the end of the run queue.
func (s *server) loadDone(now time.Duration) {
	m := s.lane[0]
	s.lane = append(s.lane[:0], s.lane[1:]...)
	s.loading = false
	m.state = resident
	s.touch(m)
	for c := m.waiting.pop(); c != nil; c = m.waiting.pop() {
		s.waits--
		s.enqueue(now, c, m)
	}
	s.dispatch(now)
	s.startLoad(now)
}

// release takes a model that is to go out of memory if it is idle. Who asked for it meanwhile waits for its next load.
func (s *server) release(now time.Duration, m *model) {
	if m.state != unloading || m.holds > 0 {
		return
	}
	m.state = absent
	s.occupied--
	s.present = slices.DeleteFunc(s.present, func(p *model) bool { return p == m })
	if m.waiting.n > 0 {
		m.state = inLane
		s.lane = append(s.lane, m)
	}
	s.startLoad(now)
}

// pending is the number of models that wait for the lane.
func (s *server) pending() int {
	if s.loading {
		return len(s.lane) - 1
	}
	return len(s.lane)
}

// laneFree returns how long it takes until the lane can begin another load.
func (s *server) laneFree(now time.Duration) time.Duration {
	free := time.Duration(len(s.lane)) * s.loadTime()
	if s.loading {
		free += s.loadEnds - now - s.loadTime()
	}
	return max(free, 0)
}

// loadTime is how long the server takes to load a model, as far as it knows.
func (s *server) loadTime() time.Duration {
	return time.Duration(float64(s.fleet.Load) * s.slow)
}

// eta returns how long it takes until a model in the lane is resident.
func (s *server) eta(now time.Duration, m *model) time.Duration {
	sum := time.Duration(0)
	for i, l := range s.lane {
		if i == 0 && s.loading {
			sum = s.loadEnds - now
		} else {
			sum += s.loadTime()
		}
		if l == m {
			break
		}
	}
	return sum
}

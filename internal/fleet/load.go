package fleet

import (
	"slices"
	"time"
)

// load is how busy a server is, in wall-clock time.
type load struct {
	active, waiting, workers, connections int

	busy                           float64 // the share of the workers that are busy
	memoryFree                     float64 // the share of the slots that are free
	queueDelay, laneFree, loadTime time.Duration
}

// load returns how busy the server is, as far as a signal tells the truth.
func (s *Server) load(signal Signals) load {
	g, wall := s.gpu, s.clock.wall
	l := load{
		active: len(g.running) + g.queued, waiting: g.queued + g.waits, workers: g.workers, connections: s.open,
		busy:       float64(len(g.running)) / float64(g.workers),
		memoryFree: 1 - float64(g.occupied)/float64(g.slots),
		queueDelay: wall(g.delay), laneFree: wall(g.laneFree(s.cfg.Load)), loadTime: wall(g.slowed(s.cfg.Load)),
	}
	lies := &s.faults.lies
	switch {
	case lies[Idle]&signal != 0:
		l.active, l.waiting, l.connections, l.busy, l.queueDelay, l.laneFree = 0, 0, 0, 0, 0, 0
	case lies[Busy]&signal != 0:
		l.active = busyRequests * l.workers
		l.waiting, l.connections, l.busy = l.active-l.workers, l.active, 1
		l.queueDelay, l.laneFree = wall(busyRequests*s.cfg.Service), busyLoads*l.loadTime
	case lies[Empty]&signal != 0:
		l.memoryFree, l.laneFree = 1, 0
	}
	return l
}

// slowed returns how long something takes now that takes d on a server of normal speed.
func (g *gpu) slowed(d time.Duration) time.Duration { return time.Duration(float64(d) * g.slow) }

// laneFree returns how long it takes until the lane can take another model, if a load takes so long on average.
func (g *gpu) laneFree(mean time.Duration) time.Duration { return g.laneTime(len(g.lane), mean) }

// loadETA returns how long it takes until a model in the lane is resident.
func (g *gpu) loadETA(m *model, mean time.Duration) time.Duration {
	return g.laneTime(slices.Index(g.lane, m)+1, mean)
}

// laneTime returns how long the first n models in the lane take.
func (g *gpu) laneTime(n int, mean time.Duration) time.Duration {
	if !g.loading {
		return time.Duration(n) * g.slowed(mean)
	}
	return g.loadEnds - g.now + time.Duration(n-1)*g.slowed(mean)
}

// meter takes means over the last period that has ended.
type meter struct {
	since time.Duration // when the present period began, in model time
	busy  time.Duration // what workers had spent on requests by then
	calls uint64        // and how many calls had been answered

	utilization float64 // of the period before; 0 until there was one
	rps         float64 // in model time
}

// meterPeriod is how long a period takes at least.
const meterPeriod = time.Second

// read returns the share of the workers that were busy, and how many calls were answered in a second of model time, of so many by
// now. Both are 0 until the first period has ended.
func (m *meter) read(g *gpu, calls uint64) (utilization, rps float64) {
	if span := g.now - m.since; span >= meterPeriod {
		busy := g.busy()
		m.utilization = (busy - m.busy).Seconds() / span.Seconds() / float64(g.workers)
		m.rps = float64(calls-m.calls) / span.Seconds()
		m.since, m.busy, m.calls = g.now, busy, calls
	}
	return m.utilization, m.rps
}

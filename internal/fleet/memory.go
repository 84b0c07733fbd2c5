package fleet

import (
	"cmp"
	"errors"
	"slices"
	"time"
)

// Why a gpu refuses a job.
var (
	errUnknown    = errors.New("model is not known")
	errNoVersions = errors.New("model is not loaded")
	errNoMemory   = errors.New("out of memory")
)

// modelState is where a model is between repository and memory.
type modelState uint8

const (
	absent    modelState = iota // never loaded, or dropped before its load began
	inLane                      // its load has begun or will, when the lane and a slot of memory are free
	resident                    // in memory, serving
	unloading                   // in memory until the requests that it holds are finished
	unloaded                    // was in memory once
	failed                      // its last load failed for want of memory
)

// model is one model as a gpu knows it.
type model struct {
	name    string
	state   modelState
	used    uint64 // when it was last used: the smallest is evicted first
	usedAt  time.Duration
	holds   int    // requests in the run queue or on a worker
	waiting []*job // for it to become resident, in order of arrival
	wanted  bool   // to be loaded even if nobody waits: an explicit load
	doomed  bool   // to be unloaded when its load is done
	served  served
}

// served sums up the requests that a model has served.
type served struct {
	count, failed  uint64
	queue, compute time.Duration // of those that did not fail
	last           time.Duration // when the last one ended
}

func (s *served) add(j *job) {
	s.count++
	s.queue += j.started - j.queuedAt
	s.compute += j.ends - j.started
	s.last = j.ends
}

// fault counts a request that failed before it got in.
func (g *gpu) fault(name string) {
	if m := g.models[name]; m != nil {
		m.served.failed++
	}
}

// settled reports whether no model is being loaded or unloaded, and none failed to load.
func (g *gpu) settled() bool {
	for _, m := range g.models {
		if m.state == inLane || m.state == unloading || m.state == failed {
			return false
		}
	}
	return true
}

// inMemory reports whether the model takes a slot and is not being loaded.
func (m *model) inMemory() bool { return m.state == resident || m.state == unloading }

func (g *gpu) model(name string) *model {
	m := g.models[name]
	if m == nil {
		m = &model{name: name}
		g.models[name] = m
	}
	return m
}

func (g *gpu) touch(m *model) {
	g.uses++
	m.used, m.usedAt = g.uses, g.now
}

// move puts a model into another state.
func (g *gpu) move(m *model, to modelState) {
	m.state = to
	g.moves++
}

// load asks for a model to be resident. The job is finished when it is, or when that has failed.
func (g *gpu) load(name string) *job {
	m := g.model(name)
	j := &job{model: m, loadOnly: true, finished: make(chan struct{})}
	m.doomed = false
	if m.state == resident {
		j.stage = done
		close(j.finished)
		return j
	}
	m.wanted = true
	m.waiting = append(m.waiting, j)
	g.want(m)
	return j
}

// unload takes a model out of memory when the requests that it holds are finished, and reports whether it was there or on its way.
func (g *gpu) unload(name string) bool {
	m := g.models[name]
	if m == nil {
		return false
	}
	switch m.state {
	case resident:
		g.startUnload(m)
	case inLane:
		m.doomed = true
	case failed:
		g.move(m, unloaded)
		return false
	default:
		return m.state == unloading
	}
	return true
}

// serving returns nil if a model is resident, and why it is not otherwise.
func (g *gpu) serving(name string) error {
	switch m := g.models[name]; {
	case m == nil || m.state == absent:
		return errUnknown
	case m.state != resident:
		return errNoVersions
	}
	return nil
}

// place makes a model resident at once if there is a free slot, and reports whether it is resident.
func (g *gpu) place(name string) bool {
	m := g.model(name)
	if m.state != resident && (m.inMemory() || m.state == inLane || g.occupied == g.slots) {
		return false
	}
	if m.state != resident {
		g.occupied++
		g.becomeResident(m)
	}
	g.touch(m)
	return true
}

// want puts a model that somebody waits for into the lane, unless it is there or has yet to leave memory.
func (g *gpu) want(m *model) {
	if m.state == inLane || m.state == unloading {
		return
	}
	m.doomed = false
	g.move(m, inLane)
	g.lane = append(g.lane, m)
	g.startLoad()
}

// unwait takes a job out of those that wait for a load. A load that nobody wants any more is not begun.
func (g *gpu) unwait(j *job) {
	m := j.model
	m.waiting = slices.DeleteFunc(m.waiting, func(w *job) bool { return w == j })
	j.stage = cancelled
	close(j.finished)
	if !j.loadOnly {
		g.waits--
	}
	if m.state != inLane || len(m.waiting) > 0 || m.wanted || g.loading && g.lane[0] == m {
		return
	}
	g.lane = slices.DeleteFunc(g.lane, func(l *model) bool { return l == m })
	g.move(m, absent)
	g.startLoad()
}

// startLoad begins the load of the first model in the lane if it has not begun and there is memory for it. If there is none, the
// least recently used idle model goes; if none is idle, the least recently used one is told to go when it is.
func (g *gpu) startLoad() {
	for len(g.lane) > 0 && !g.loading {
		m := g.lane[0]
		if g.occupied == g.slots {
			switch victim := g.victim(); {
			case victim != nil:
				g.startUnload(victim)
			case g.explicit && !g.anyUnloading():
				g.lane = g.lane[1:]
				g.fail(m)
			default:
				return
			}
			continue
		}
		g.occupied++
		g.loading = true
		g.loadEnds = g.now + g.slowed(g.loadTime())
		g.count.loads++
		if !m.wanted {
			g.count.coldLoads++
		}
		g.record(g.now, m.name, Loading)
	}
}

// victim returns the model to unload for the one in the lane; nil if one is on its way out already, or none may be.
func (g *gpu) victim() *model {
	if g.explicit || g.anyUnloading() {
		return nil
	}
	idle, lru := g.leastUsed()
	return cmp.Or(idle, lru)
}

// leastUsed returns the least recently used of the resident models that nobody uses now, and of all resident ones; nil if there
// is none.
func (g *gpu) leastUsed() (idle, lru *model) {
	for _, m := range g.models {
		if m.state != resident {
			continue
		}
		if lru == nil || m.used < lru.used {
			lru = m
		}
		if m.holds == 0 && (idle == nil || m.used < idle.used) {
			idle = m
		}
	}
	return idle, lru
}

func (g *gpu) anyUnloading() bool {
	for _, m := range g.models {
		if m.state == unloading {
			return true
		}
	}
	return false
}

// loaded ends the load that has the lane: who waited goes to the end of the run queue.
func (g *gpu) loaded() {
	m := g.lane[0]
	g.lane = g.lane[1:]
	g.loading = false
	g.becomeResident(m)
	g.touch(m)
	for _, j := range m.waiting {
		if j.loadOnly {
			j.stage, j.ends = done, g.now
			close(j.finished)
			continue
		}
		m.holds++
		g.waits--
		g.enqueue(j)
	}
	m.waiting = nil
	if m.doomed {
		g.startUnload(m)
	}
	g.dispatch()
	g.startLoad()
}

func (g *gpu) becomeResident(m *model) {
	m.wanted = false
	g.move(m, resident)
	g.record(g.now, m.name, Loaded)
}

// startUnload lets no new request near the model, and takes it out of memory once it is idle.
func (g *gpu) startUnload(m *model) {
	m.doomed = false
	g.move(m, unloading)
	g.release(m)
}

// release takes a model that is to go out of memory if it is idle. Who asked for it meanwhile waits for its next load.
func (g *gpu) release(m *model) {
	if m.state != unloading || m.holds > 0 {
		return
	}
	g.move(m, unloaded)
	g.occupied--
	g.count.evictions++
	g.record(g.now, m.name, Evicted)
	if len(m.waiting) > 0 || m.wanted {
		g.move(m, inLane)
		g.lane = append(g.lane, m)
	}
	g.startLoad()
}

// fail ends a load for which there is no memory.
func (g *gpu) fail(m *model) {
	m.wanted, m.doomed = false, false
	g.move(m, failed)
	for _, j := range m.waiting {
		if !j.loadOnly {
			g.waits--
		}
		j.stage, j.err = done, errNoMemory
		close(j.finished)
	}
	m.waiting = nil
}

// stop ends everything as it stands, and records that the memory is gone, what it was loading included.
func (g *gpu) stop() {
	for _, m := range g.inOrder() {
		if m.inMemory() || g.loading && g.lane[0] == m {
			g.record(g.now, m.name, Evicted)
		}
	}
	g.stopped = true
}

// inOrder returns the models in order of last use, the next to be evicted first.
func (g *gpu) inOrder() []*model {
	all := make([]*model, 0, len(g.models))
	for _, m := range g.models {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *model) int { return cmp.Compare(a.used, b.used) })
	return all
}

package fleet

import "time"

// gpu is what a simulated server computes with: a few workers behind one run queue, here, and memory for a few models, in
// memory.go. It is a state machine in model time that starts no goroutine and reads no clock: its owner tells it the time with
// advance, learns from next when that is due again, and calls all methods under one lock. What happens between two calls of
// advance happens at its own time, so a late timer delays nobody but who waits for the answer.
type gpu struct {
	workers, slots int
	explicit       bool                                                 // never load or evict a model by itself
	slow           float64                                              // how much longer than normal what starts now takes
	loadTime       func() time.Duration                                 // draws the time of the next load
	record         func(at time.Duration, model string, kind EventKind) // is told of each change in memory
	count          *counters

	now     time.Duration
	stopped bool // nothing happens any more
	running []*job
	queue   []*job        // in order of arrival; jobs that were cancelled stay until they reach the head
	queued  int           // the jobs in queue that were not cancelled
	waits   int           // the requests that wait for a load
	delay   time.Duration // how long requests have lately waited in the queue: a moving average

	models   map[string]*model // those that it has ever been asked for
	occupied int               // slots
	uses     uint64            // a clock for model.used
	moves    uint64            // how often a model has changed its state
	lane     []*model          // models to load: the first has the lane, the others wait for it
	loading  bool              // whether the first one's load runs; otherwise it waits for memory
	loadEnds time.Duration     // when it does
}

// delayWeight is by how much less than its own delay each request moves the average.
const delayWeight = 8

// counters are what a gpu counts. They outlive it when the server restarts.
type counters struct {
	hits, coldCalls, coldLoads, loads, evictions uint64
	busy                                         time.Duration // of requests that have left their worker
}

func newGPU(workers, slots int, count *counters) *gpu {
	return &gpu{workers: workers, slots: slots, slow: 1, count: count, models: make(map[string]*model)}
}

// stage is how far a job has come.
type stage uint8

const (
	waiting stage = iota // for a load of its model
	queued               // for a worker
	running
	done
	cancelled
)

// job is one request for a model, or a wish to have it loaded.
type job struct {
	model    *model
	work     time.Duration // on a worker of normal speed
	loadOnly bool          // done when the model is resident
	stage    stage
	cold     bool          // it had to wait for a load
	queuedAt time.Duration // when it entered the run queue
	started  time.Duration
	ends     time.Duration // when it has ended, or will if it stays on its worker
	err      error         // why it was refused; set before finished is closed
	finished chan struct{} // closed when the job is done
}

// next returns when the state changes by itself, and false if it never will.
func (g *gpu) next() (at time.Duration, ok bool) {
	if g.stopped {
		return 0, false
	}
	if j := g.firstToEnd(); j != nil {
		at, ok = j.ends, true
	}
	if g.loading && (!ok || g.loadEnds < at) {
		at, ok = g.loadEnds, true
	}
	return at, ok
}

// advance lets everything happen that is due at now or before. A time that has passed already changes nothing.
func (g *gpu) advance(now time.Duration) {
	for {
		at, ok := g.next()
		if !ok || at > now {
			break
		}
		g.now = max(g.now, at)
		if j := g.firstToEnd(); j != nil && j.ends == at {
			g.leaveWorker(j)
			g.end(j, done)
			g.touch(j.model)
			j.model.served.add(j)
			g.dispatch()
		} else {
			g.loaded()
		}
	}
	g.now = max(g.now, now)
}

// submit adds a request. Its job is finished when the work is done, or already if the request was refused. work is at least 0.
func (g *gpu) submit(name string, work time.Duration) *job {
	if g.explicit {
		if err := g.serving(name); err != nil {
			return refuse(err)
		}
	}
	m := g.model(name)
	j := &job{model: m, work: work, finished: make(chan struct{})}
	g.touch(m)
	if m.state != resident {
		g.count.coldCalls++
		j.cold = true
		m.waiting = append(m.waiting, j)
		g.waits++
		g.want(m)
		return j
	}
	g.count.hits++
	m.holds++
	g.enqueue(j)
	g.dispatch()
	g.advance(g.now) // work of no time is done at once
	return j
}

// cancel takes a job out wherever it is, and reports whether it was still there.
func (g *gpu) cancel(j *job) bool {
	if j.stage == done || j.stage == cancelled {
		return false
	}
	if g.stopped {
		return true
	}
	switch j.stage {
	case waiting:
		g.unwait(j)
	case queued:
		g.queued--
		g.end(j, cancelled)
	case running:
		g.leaveWorker(j)
		g.end(j, cancelled)
		g.dispatch()
		g.advance(g.now)
	}
	return true
}

// refuse returns a job that was not let in.
func refuse(err error) *job {
	j := &job{stage: done, err: err, finished: make(chan struct{})}
	close(j.finished)
	return j
}

// enqueue puts a job whose model is resident at the end of the run queue.
func (g *gpu) enqueue(j *job) {
	j.stage, j.queuedAt = queued, g.now
	g.queue = append(g.queue, j)
	g.queued++
}

// dispatch gives free workers to the jobs at the head of the queue.
func (g *gpu) dispatch() {
	for len(g.running) < g.workers && len(g.queue) > 0 {
		j := g.queue[0]
		g.queue[0] = nil
		g.queue = g.queue[1:]
		if j.stage == cancelled {
			continue
		}
		g.queued--
		j.stage, j.started = running, g.now
		g.delay += (j.started - j.queuedAt - g.delay) / delayWeight
		j.ends = g.now + g.slowed(j.work)
		g.running = append(g.running, j)
	}
}

// firstToEnd returns the running job that ends first; of several, the one that started first.
func (g *gpu) firstToEnd() *job {
	var first *job
	for _, j := range g.running {
		if first == nil || j.ends < first.ends {
			first = j
		}
	}
	return first
}

func (g *gpu) leaveWorker(j *job) {
	for i, r := range g.running {
		if r == j {
			g.running = append(g.running[:i], g.running[i+1:]...)
			break
		}
	}
	g.count.busy += g.now - j.started
}

// end lets go of a job that was queued or running.
func (g *gpu) end(j *job, s stage) {
	j.stage, j.ends = s, g.now
	close(j.finished)
	j.model.holds--
	if s == cancelled {
		j.model.served.failed++
	}
	g.release(j.model)
}

// busy returns the time that workers have spent on requests so far.
func (g *gpu) busy() time.Duration {
	sum := g.count.busy
	for _, j := range g.running {
		sum += g.now - j.started
	}
	return sum
}

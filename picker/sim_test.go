package picker

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// simulation drives strategies in virtual time: clients that place calls through tables of their own on servers that they share.
// The same seed gives the same run.
type simulation struct {
	rng       *rand.Rand
	now       time.Duration
	events    events
	seq       int
	servers   []*server
	clients   []*Table
	latencies []time.Duration // of the calls that started after since
	calls     []int           // by server
	since     time.Duration
}

// server serves calls one after the other on each of its workers, first come first served.
type server struct {
	workers int // 0: any number
	service func(rng *rand.Rand, now time.Duration) time.Duration
	busy    int
	queue   []func()
}

type event struct {
	at  time.Duration
	seq int
	run func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// simulate returns a simulation of a number of clients, all with the same options, of servers of weight 1.
func simulate(seed uint64, o Options, clients int, servers ...*server) *simulation {
	s := &simulation{rng: rand.New(rand.NewPCG(seed, 1)), servers: servers, calls: make([]int, len(servers))}
	for range clients {
		s.clients = append(s.clients, readyTable(o, s.rng.Uint64, len(servers)))
	}
	return s
}

func (s *simulation) after(d time.Duration, run func()) {
	s.seq++
	heap.Push(&s.events, event{s.now + d, s.seq, run})
}

// run goes on until a point in time.
func (s *simulation) run(until time.Duration) {
	for len(s.events) > 0 && s.events[0].at <= until {
		e := heap.Pop(&s.events).(event)
		s.now = e.at
		e.run()
	}
	s.now = until
}

// measure forgets what was counted so far.
func (s *simulation) measure() {
	s.since = s.now
	s.latencies = s.latencies[:0]
	clear(s.calls)
}

// call places one call and runs done, if not nil, at its end.
func (s *simulation) call(client int, req Request, done func()) {
	t, start := s.clients[client], s.now
	q := Query{Request: req, Key: Key(req.ModelID), Now: int64(start)}
	c := t.Pick(&q)
	e, srv, cost := t.Member(c.Index).Endpoint, s.servers[c.Index], q.Cost()
	e.Begin(cost, c.Reason)
	s.calls[c.Index]++
	end := func() {
		e.End(cost)
		e.Observe(int64(s.now), s.now-start)
		if start >= s.since {
			s.latencies = append(s.latencies, s.now-start)
		}
		if done != nil {
			done()
		}
	}
	serve := func() {
		srv.busy++
		s.after(srv.service(s.rng, s.now), func() {
			srv.busy--
			if len(srv.queue) > 0 {
				next := srv.queue[0]
				srv.queue = srv.queue[1:]
				next()
			}
			end()
		})
	}
	if srv.workers > 0 && srv.busy == srv.workers {
		srv.queue = append(srv.queue, serve)
		return
	}
	serve()
}

// open starts calls at a rate per second at random times, from random clients.
func (s *simulation) open(rate float64) {
	s.after(time.Duration(s.rng.ExpFloat64()/rate*1e9), func() {
		s.call(s.rng.IntN(len(s.clients)), Request{}, nil)
		s.open(rate)
	})
}

// closed makes calls one after the other, so that one is always in flight, until n are begun.
func (s *simulation) closed(client int, n *int) {
	if *n > 0 {
		*n--
		s.call(client, Request{}, func() { s.closed(client, n) })
	}
}

// quantile returns a latency in milliseconds.
func (s *simulation) quantile(p float64) float64 {
	slices.Sort(s.latencies)
	return float64(s.latencies[int(p*float64(len(s.latencies)-1))]) / 1e6
}

// share returns the part of the calls that a server got, relative to an equal share.
func (s *simulation) share(i int) float64 {
	sum := 0
	for _, n := range s.calls {
		sum += n
	}
	return float64(s.calls[i]) / float64(sum) * float64(len(s.calls))
}

// constant is a service time.
func constant(d time.Duration) func(*rand.Rand, time.Duration) time.Duration {
	return func(*rand.Rand, time.Duration) time.Duration { return d }
}

// lognormal is a random service time with a mean and a coefficient of variation.
func lognormal(mean time.Duration, cv float64) func(*rand.Rand, time.Duration) time.Duration {
	sigma := math.Sqrt(math.Log(1 + cv*cv))
	return func(rng *rand.Rand, _ time.Duration) time.Duration {
		return time.Duration(float64(mean) * math.Exp(sigma*rng.NormFloat64()-sigma*sigma/2))
	}
}

// jittery is a service time that is, with some chance, up to so many times as long.
func jittery(d time.Duration, chance, factor float64) func(*rand.Rand, time.Duration) time.Duration {
	return func(rng *rand.Rand, _ time.Duration) time.Duration {
		if rng.Float64() < chance {
			return time.Duration(float64(d) * (1 + (factor-1)*rng.Float64()))
		}
		return d
	}
}

package breaker

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Group is the breakers of one channel's endpoints. It holds the rules, sees that no more than a share of the breakers is open
// at once, knows how often the endpoints fail as a whole, and collects the events.
//
// Tick must be called every 50 to 100 ms: it does what depends on time alone. Set, Configure and Tick exclude one another by a
// lock that no other method takes, least of all Allow and Done. All methods are safe for concurrent use.
type Group struct {
	rand     func() uint64
	settings atomic.Pointer[settings]
	roster   atomic.Pointer[roster]

	places  atomic.Uint64 // how many breakers may be open or half-open (32 bits), and how many are (32 bits)
	waiting atomic.Bool   // a breaker waits for a place, or did so a moment ago
	freed   atomic.Bool   // what Tick returns
	sum     groupSum
	events  eventLog

	mu      sync.Mutex // guards what follows, and excludes Set, Configure and Tick from one another; no callback runs under it
	watches []watch
	ticked  int64 // time of the last tick
}

// settings is a Config, and what follows from it.
type settings struct {
	Config
	steps  steps
	maxExp uint // the exponent at which the open time reaches its maximum
}

func newSettings(c Config) *settings {
	s := &settings{Config: c, steps: stepsOf(time.Duration(c.Window))}
	for s.maxExp < maxExp && c.OpenFor<<s.maxExp < c.MaxOpenFor {
		s.maxExp++
	}
	return s
}

// baseOpenTime is the open time before the random part is added.
func (s *settings) baseOpenTime(exp uint) time.Duration {
	return time.Duration(min(s.OpenFor<<min(exp, s.maxExp), s.MaxOpenFor))
}

// openTime returns OpenFor x 2^exp x U, where U is uniform in [1, 1.5) if random is, but no more than MaxOpenFor.
func (s *settings) openTime(exp uint, random uint64) time.Duration {
	u := 1 + float64(random>>11)/(1<<54)
	return min(time.Duration(float64(s.baseOpenTime(exp))*u), time.Duration(s.MaxOpenFor))
}

// roster is a group's members and what was counted by those that are no longer among them, so that the group's totals never fall.
type roster struct {
	members             []*Breaker
	successes, failures uint64
}

// NewGroup returns a group without members. c must be valid, and is copied. rand returns uniformly distributed random numbers
// and must be safe for concurrent use.
func NewGroup(c Config, rand func() uint64) *Group {
	g := &Group{rand: rand}
	g.settings.Store(newSettings(c))
	g.roster.Store(&roster{})
	g.sum.at.Store(never)
	return g
}

// Config returns the rules in force.
func (g *Group) Config() Config { return g.settings.Load().Config }

// SlowTime is Config.SlowTime by the rules in force.
func (g *Group) SlowTime(expected, remaining time.Duration) time.Duration {
	return g.settings.Load().SlowTime(expected, remaining)
}

// Configure changes the rules. c must be valid. No breaker changes its state for it, unless fewer may be open now; if the window
// has another length, what was in it is forgotten.
func (g *Group) Configure(now int64, c Config) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.settings.Store(newSettings(c))
	for i := range g.watches {
		b := g.watches[i].breaker
		b.window.check(g.settings.Load().steps, now, b.inTime())
	}
	g.limit(now)
}

// Set makes the given breakers the group's members; none may be given twice, or be in another group. A breaker that leaves its
// group keeps its state. One that is open already when it joins takes one of the places for open breakers, and if there are too
// few of them, those that are nearest to closing do so.
func (g *Group) Set(now int64, members []*Breaker) {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := make(map[*Breaker]*watch, len(g.watches))
	for i := range g.watches {
		before[g.watches[i].breaker] = &g.watches[i]
	}
	watches := make([]watch, 0, len(members))
	for _, b := range members {
		if w := before[b]; w != nil {
			watches = append(watches, *w)
			delete(before, b)
			continue
		}
		g.join(b)
		b.window.check(g.settings.Load().steps, now, b.inTime())
		watches = append(watches, watch{
			breaker: b, quietSince: now, status: b.Status(now), successes: b.successes(), failed: b.window.failed.Load(),
		})
	}
	g.watches = watches
	for b := range before {
		b.group.CompareAndSwap(g, nil)
		g.takeBack(b)
	}
	g.enroll(slices.Clone(members))
	g.limit(now)
	g.publish()
}

// join puts a breaker into the group.
func (g *Group) join(b *Breaker) {
	b.waiting.Store(false)
	b.suspicion.word.Store(0)
	b.group.Store(g)
	if b.State() == Closed {
		return
	}
	g.places.Add(1)
	if old := b.place.Swap(g); old != nil {
		old.give()
	}
	if b.State() == Closed { // it closed before it had the place
		g.takeBack(b)
	}
}

// take takes a place for an open breaker, and returns false if there is none.
func (g *Group) take() bool {
	for {
		p := g.places.Load()
		if uint32(p) >= uint32(p>>32) {
			return false
		}
		if g.places.CompareAndSwap(p, p+1) {
			return true
		}
	}
}

func (g *Group) give() { g.places.Add(^uint64(0)) }

// takeBack takes the breaker's place back, if it has one of this group's.
func (g *Group) takeBack(b *Breaker) {
	if b.place.CompareAndSwap(g, nil) {
		g.give()
	}
}

// Open returns how many breakers of the group are open or half-open, and how many may be.
func (g *Group) Open() (open, limit int) {
	p := g.places.Load()
	return int(uint32(p)), int(p >> 32)
}

// limit works out how many breakers may be open.
func (g *Group) limit(now int64) {
	limit := uint64(len(g.watches) * g.settings.Load().MaxEjectionPercent / 100)
	for {
		p := g.places.Load()
		if g.places.CompareAndSwap(p, limit<<32|uint64(uint32(p))) {
			break
		}
	}
	g.trim(now)
}

// trim closes breakers while too many are open: the limit has fallen.
func (g *Group) trim(now int64) {
	for {
		open, limit := g.Open()
		if open <= limit || !g.readmit(now, limit) {
			return
		}
	}
}

// readmit closes the breaker that is nearest to closing anyway, and returns false if none is open.
func (g *Group) readmit(now int64, limit int) bool {
	var nearest *Breaker
	var at word
	for i := range g.watches {
		b := g.watches[i].breaker
		w := word(b.word.Load())
		if w.state() == Closed {
			continue
		}
		if nearest == nil || nearness(w, now) < nearness(at, now) {
			nearest, at = b, w
		}
	}
	if nearest == nil {
		return false
	}
	nearest.close(nearest, g, at, now, Reason{Rule: OverCap, Count: limit})
	return true
}

// nearness orders breakers that are not closed by how far they are from it.
func nearness(w word, now int64) time.Duration {
	if w.state() == HalfOpen {
		return -time.Duration(1+w.wins()) * 24 * time.Hour
	}
	return until(w.stamp(), now)
}

// Tick does what depends on time: it takes calls that are past their slow time for slow, lets the leases of probes run out,
// opens what hangs or is slow, and what had to wait for a place, the worst first. It reports whether a call that was refused
// since the last tick may have better luck now: a breaker has closed or is due, or a probe has ended or may be made again.
func (g *Group) Tick(now int64) (freed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.settings.Load()
	stalled := now-g.ticked > int64(stalledFor)
	for i := range g.watches {
		g.watches[i].look(g, s, now, stalled)
	}
	g.eject(s, now)
	g.trim(now)
	g.collect(now)
	g.publish()
	freed = g.freed.Swap(false)
	for i := range g.watches {
		w := &g.watches[i]
		status := w.breaker.Status(now)
		freed = freed || w.status == Refusing && status != Refusing
		w.status = status
	}
	return freed
}

// stalledFor is how late a tick must be to tell that this process did not run for a while, or that its clock jumped. Calls that
// are past their slow time by then may have been answered long ago, so they get until the next tick.
const stalledFor = time.Second

// Next returns when the status of a member may change by time alone (see Breaker.Next).
func (g *Group) Next(now int64) int64 {
	next := int64(math.MaxInt64)
	for _, b := range g.roster.Load().members {
		next = min(next, b.Next(now))
	}
	return next
}

// Drain hands all changes of state to f that have happened since the last Drain, in order. f runs outside every lock: it may call
// anything here, and may take its time, though Drain returns at once where another Drain is under way. The last 1,024
// changes are kept for it; Lost counts those that were not.
func (g *Group) Drain(f func(Event)) { g.events.drain(f) }

// Lost returns how many events were lost since nobody drained them in time.
func (g *Group) Lost() uint64 { return g.events.lost.Load() }

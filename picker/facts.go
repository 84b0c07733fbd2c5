package picker

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/mlbalancer/mlbalancer/health"
)

// facts is how busy an endpoint's server said it was, last. Whoever reads while it is written finds some words of the one report and some
// of the other, which is no worse than either.
type facts struct {
	at      atomic.Int64 // as of when; 0 before the first
	has     atomic.Uint32
	own     atomic.Int32 // this client's calls on it at that time
	active  atomic.Int32
	waits   atomic.Int32
	workers atomic.Int32

	period      atomic.Int64 // how often it is said at least, as far as that is known
	connections atomic.Int32
	memoryFree  atomic.Uint32 // float32
	utilization atomic.Uint32 // float32
	memoryAt    atomic.Int64
	connAt      atomic.Int64

	queueDelay atomic.Int64
	laneFree   atomic.Int64 // when
	loadTime   atomic.Int64
	victim     atomic.Uint64 // health.Victim in the lowest bits, and the rest of the model's key above it
	victimUsed atomic.Int64  // when
	copied     atomic.Int32  // how many endpoints held the victim ready at the last report
}

const victimMask = 3

// note takes in what a server said, as of at. It neither locks nor allocates.
func (f *facts) note(e *Endpoint, at int64, l *health.Load, period time.Duration) {
	if at < f.at.Load() {
		return
	}
	f.period.Store(int64(period))
	f.at.Store(at)
	f.own.Store(int32(e.InFlight()))
	f.count(health.HasActive, l, &f.active, l.Active)
	f.count(health.HasWaiting, l, &f.waits, l.Waiting)
	f.count(health.HasWorkers, l, &f.workers, l.Workers)
	f.count(health.HasConnections, l, &f.connections, l.Connections)
	if l.Has&health.HasConnections != 0 {
		f.connAt.Store(at)
	}
	if l.Has&health.HasMemoryFree != 0 {
		f.memoryFree.Store(math.Float32bits(float32(l.MemoryFree)))
		f.memoryAt.Store(at)
	}
	if l.Has&health.HasUtilization != 0 {
		f.utilization.Store(math.Float32bits(float32(l.Utilization)))
	}
	if l.Has&health.HasQueueDelay != 0 {
		f.queueDelay.Store(int64(l.QueueDelay))
	}
	if l.Has&health.HasLaneFree != 0 {
		f.laneFree.Store(at + int64(l.LaneFree))
	}
	if l.Has&health.HasLoadTime != 0 {
		f.loadTime.Store(int64(l.LoadTime))
	}
	if l.Has&health.HasVictim != 0 {
		f.victim.Store(l.VictimModel&^victimMask | uint64(l.Victim))
		f.victimUsed.Store(at - int64(l.VictimAge))
	}
	f.has.Store(f.has.Load() | uint32(l.Has))
}

func (f *facts) count(field health.Fields, l *health.Load, to *atomic.Int32, n int) {
	if l.Has&field != 0 {
		to.Store(int32(min(max(n, 0), math.MaxInt32)))
	}
}

// forget makes the facts those of a server that has not said anything.
func (f *facts) forget() {
	f.has.Store(0)
	f.at.Store(0)
	f.active.Store(0)
	f.memoryAt.Store(0)
	f.connAt.Store(0)
}

// free returns the share of GPU memory that is free.
func (f *facts) free() float64 { return float64(math.Float32frombits(f.memoryFree.Load())) }

// tellsCalls reports whether the server says how many calls it has in flight: else nothing is known of those of others.
func (f *facts) tellsCalls() bool { return health.Fields(f.has.Load())&health.HasActive != 0 }

// others returns how many calls others had in flight at the last report, 0 if that is too old to say.
func (f *facts) others(now int64) int64 {
	if now-f.at.Load() > maxFactsAge {
		return 0
	}
	return max(0, int64(f.active.Load()-f.own.Load()))
}

// busy returns how busy the server said it is, from 0 to 1; 0 if it did not.
func (f *facts) busy() float64 { return min(1, float64(math.Float32frombits(f.utilization.Load()))) }

// Note takes in how busy the endpoint's server said it is. It neither locks nor allocates.
func (e *Endpoint) Note(now int64, l *health.Load) { e.facts.note(e, now, l, 0) }

// Facts returns what the endpoint's server said of itself, with fields as of the last report that had them, and how long ago the last report was;
// an empty Load before the first.
func (e *Endpoint) Facts(now int64) (l health.Load, age time.Duration) {
	f := &e.facts
	l.Has = health.Fields(f.has.Load())
	if l.Has == 0 {
		return l, 0
	}
	l.Active, l.Waiting = int(f.active.Load()), int(f.waits.Load())
	l.Workers, l.Connections = int(f.workers.Load()), int(f.connections.Load())
	l.MemoryFree = f.free()
	l.Utilization = float64(math.Float32frombits(f.utilization.Load()))
	l.QueueDelay = time.Duration(f.queueDelay.Load())
	l.LaneFree = time.Duration(max(0, f.laneFree.Load()-now))
	l.LoadTime = time.Duration(f.loadTime.Load())
	v := f.victim.Load()
	l.Victim, l.VictimModel = health.Victim(v&victimMask), v&^victimMask
	l.VictimAge = time.Duration(now - f.victimUsed.Load())
	return l, time.Duration(now - f.at.Load())
}

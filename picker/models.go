package picker

import (
	"iter"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mlbalancer/mlbalancer/breaker"
	"github.com/mlbalancer/mlbalancer/health"
)

const (
	// maxModels bounds the models that an endpoint remembers. A GPU server holds tens of models, one with adapters some
	// hundreds; beyond the bound the one that was used least recently among a few makes room.
	maxModels = 256
	// maxReported bounds them where the server itself has named more. What it has named makes room for nothing.
	maxReported = 4096
	// modelProbe is how many slots a model may be found in.
	modelProbe = 8
	// serviceWeight is the weight of a new service time in the average.
	serviceWeight = 0.15
)

// Model is what an endpoint has learned of one model. It is safe for concurrent use.
type Model struct {
	// What a pick and the end of its call read and write fills a cache line, and all of the model two: models are allocated side
	// by side, and the calls of one must not slow another's down.
	key      uint64
	state    atomic.Uint32 // health.ModelState, from what the sources say
	reported atomic.Int64  // service time that the server gave, 0 if none
	service  atomic.Uint64 // float64 nanoseconds
	used     atomic.Int64
	pair     atomic.Pointer[breaker.Pair] // nil while there is nothing against the model
	baseline health.Baseline

	name    string
	work    decayingSum
	readyAt atomic.Int64              // when a load of it should be done
	marks   [health.MaxSources]uint16 // what each source said; guarded by the lock of the endpoint's reports
	settled health.ModelState         // what the residency knows; guarded like marks
}

// Name returns the model's name.
func (m *Model) Name() string { return m.name }

// Breaker returns the model's breaker on the endpoint, or nil while there is nothing against the model.
func (m *Model) Breaker() *breaker.Pair { return m.pair.Load() }

// Service returns the moving average of the latency of successful calls.
func (m *Model) Service() time.Duration {
	return time.Duration(math.Float64frombits(m.service.Load()))
}

// Used returns when the model was last called with success, 0 if it has not been: a source may have named it.
func (m *Model) Used() int64 { return m.used.Load() }

// State returns what the sources of health say of the model on the endpoint.
func (m *Model) State() health.ModelState { return health.ModelState(m.state.Load()) }

func (m *Model) observe(now int64, latency float64) {
	for {
		old := m.service.Load()
		next := latency
		if old != 0 {
			v := math.Float64frombits(old)
			next = v + serviceWeight*(latency-v)
		}
		if m.service.CompareAndSwap(old, math.Float64bits(next)) {
			if now-m.used.Load() > callUnit {
				m.used.Store(now)
			}
			return
		}
	}
}

// modelTable is a hash table of bounded size that is read without a lock. It starts empty and doubles as models arrive.
type modelTable struct {
	slots atomic.Pointer[[]atomic.Pointer[Model]]
	grows sync.Mutex // held while a model is added
}

func (t *modelTable) get(key uint64) *Model {
	slots := t.slots.Load()
	if slots == nil {
		return nil
	}
	mask := uint64(len(*slots) - 1)
	for i := range uint64(modelProbe) {
		m := (*slots)[(key+i)&mask].Load()
		if m == nil {
			return nil
		}
		if m.key == key {
			return m
		}
	}
	return nil
}

// add returns the entry of a model, made if need be. It never waits: what is new while another model is being added is learned the next
// time, and the entry that is returned belongs to no table. So does that of a model for which there is no room.
func (t *modelTable) add(key uint64, name string) *Model {
	if m := t.get(key); m != nil {
		return m
	}
	m := &Model{key: key, name: strings.Clone(name)} // a name read from a message may pin all of it
	if !t.grows.TryLock() {
		return m
	}
	defer t.grows.Unlock()
	if held := t.get(key); held != nil {
		return held
	}
	t.put(m, maxModels)
	return m
}

// admit returns the entry of a model that the server has named, made if need be, or nil if there is no room for it.
func (t *modelTable) admit(key uint64, name string) *Model {
	if m := t.get(key); m != nil {
		return m
	}
	t.grows.Lock()
	defer t.grows.Unlock()
	if m := t.get(key); m != nil {
		return m
	}
	m := &Model{key: key, name: strings.Clone(name)}
	if !t.put(m, maxReported) {
		return nil
	}
	return m
}

// put gives a model a slot: a free one, or from a number of slots on that of the least recently used model among a few of which no source
// says anything. Caller must hold the lock.
func (t *modelTable) put(m *Model, most int) bool {
	for {
		slots := t.slots.Load()
		if slots == nil {
			fresh := make([]atomic.Pointer[Model], modelProbe)
			slots = &fresh
			t.slots.Store(slots)
		}
		mask := uint64(len(*slots) - 1)
		oldest, oldestUsed := -1, int64(math.MaxInt64)
		for i := range uint64(modelProbe) {
			at := (m.key + i) & mask
			held := (*slots)[at].Load()
			if held == nil {
				(*slots)[at].Store(m)
				return true
			}
			if u := held.used.Load(); u < oldestUsed && held.state.Load() == uint32(health.ModelUnknown) {
				oldest, oldestUsed = int(at), u
			}
		}
		if len(*slots) >= most && oldest >= 0 {
			(*slots)[oldest].Store(m)
			return true
		}
		if len(*slots) >= max(most, maxReported) || !t.grow(*slots) {
			return false
		}
	}
}

// grow replaces the slots by twice as many, or four times if need be.
func (t *modelTable) grow(old []atomic.Pointer[Model]) bool {
	for n := 2 * len(old); n <= 2*maxReported; n *= 2 {
		if fresh := rehash(old, n); fresh != nil {
			t.slots.Store(&fresh)
			return true
		}
	}
	return false
}

// rehash returns the models in a number of slots, or nil if one finds none.
func rehash(old []atomic.Pointer[Model], n int) []atomic.Pointer[Model] {
	fresh := make([]atomic.Pointer[Model], n)
	mask := uint64(n - 1)
next:
	for i := range old {
		m := old[i].Load()
		if m == nil {
			continue
		}
		for j := range uint64(modelProbe) {
			if slot := &fresh[(m.key+j)&mask]; slot.Load() == nil {
				slot.Store(m)
				continue next
			}
		}
		return nil
	}
	return fresh
}

// ObserveModel notes the latency and the cost of a successful call for a model that ended at now.
func (e *Endpoint) ObserveModel(key uint64, name string, now int64, latency time.Duration, cost uint32) {
	e.observeModel(e.models.add(key, name), now, float64(latency), cost)
}

func (e *Endpoint) observeModel(m *Model, now int64, latency float64, cost uint32) {
	m.observe(now, latency)
	if sampled(now) {
		e.work.add(now, workSample*float64(cost))
		m.work.add(now, workSample*float64(cost))
	}
}

const (
	// callUnit is how exactly it is known when a call for a model last ended, in nanoseconds: where there are many, most save an
	// atomic write.
	callUnit = int64(time.Millisecond)
	// usedUnit is the same where calls do not tell: every message of a stream does.
	usedUnit = int64(time.Second)
)

// served notes that the endpoint serves a model.
func (e *Endpoint) served(key uint64, name string, now int64) {
	if m := e.models.add(key, name); now-m.used.Load() > usedUnit {
		m.used.Store(now)
	}
}

// workSample is how many calls there are to each whose work is summed: shares of hundreds of calls are all that is wanted.
const workSample = 8

// sampled reports whether the call that ended at now is one of those: the time, multiplied by an odd number of random bits, decides.
func sampled(now int64) bool { return uint64(now)*0x9e3779b97f4a7c15>>61 == 0 }

// workFor returns the work that the endpoint has done for a model, lately.
func (e *Endpoint) workFor(key uint64, now int64) float64 {
	if m := e.models.get(key); m != nil {
		return m.work.at(now)
	}
	return 0
}

// Service returns the average latency of a model's successful calls on this endpoint, and 0 if it has had none.
func (e *Endpoint) Service(key uint64) time.Duration {
	if m := e.models.get(key); m != nil {
		return m.Service()
	}
	return 0
}

// Models ranges over what the endpoint knows of its models, in no order. It allocates nothing but is not for the pick path.
func (e *Endpoint) Models() iter.Seq[*Model] {
	return func(yield func(*Model) bool) {
		slots := e.models.slots.Load()
		if slots == nil {
			return
		}
		for i := range *slots {
			if m := (*slots)[i].Load(); m != nil && !yield(m) {
				return
			}
		}
	}
}

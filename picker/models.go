package picker

import (
	"iter"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mlbalancer/mlbalancer/breaker"
)

const (
	// maxModels bounds the models that an endpoint remembers. A GPU server holds tens of models, one with adapters some
	// hundreds; beyond the bound the one that was used least recently among a few makes room.
	maxModels = 256
	// modelProbe is how many slots a model may be found in.
	modelProbe = 8
	// serviceWeight is the weight of a new service time in the average.
	serviceWeight = 0.15
)

// Model is what an endpoint has learned of one model. It is safe for concurrent use.
type Model struct {
	key     uint64
	name    string
	service atomic.Uint64 // float64 nanoseconds
	used    atomic.Int64
	work    decayingSum
	pair    atomic.Pointer[breaker.Pair] // nil while there is nothing against the model
	// It fills a cache line: models are allocated side by side, and the calls of one must not slow another's down.
}

// Name returns the model's name.
func (m *Model) Name() string { return m.name }

// Breaker returns the model's breaker on the endpoint, or nil while there is nothing against the model.
func (m *Model) Breaker() *breaker.Pair { return m.pair.Load() }

// Service returns the moving average of the latency of successful calls.
func (m *Model) Service() time.Duration {
	return time.Duration(math.Float64frombits(m.service.Load()))
}

func (m *Model) observe(now int64, latency float64) {
	for {
		old := m.service.Load()
		next := latency
		if old != 0 {
			v := math.Float64frombits(old)
			next = v + serviceWeight*(latency-v)
		}
		if m.service.CompareAndSwap(old, math.Float64bits(next)) {
			m.used.Store(now)
			return
		}
	}
}

// modelTable is a lock-free hash table of bounded size. It starts empty and doubles as models arrive; a reader that meets
// a table being replaced sees the old one. An entry that is added while the table grows may be lost, and is then learned again.
type modelTable struct {
	slots atomic.Pointer[[]atomic.Pointer[Model]]
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

// add returns the entry of a model, made if need be.
func (t *modelTable) add(key uint64, name string) *Model {
	for {
		if m := t.get(key); m != nil {
			return m
		}
		slots := t.slots.Load()
		if slots == nil {
			fresh := make([]atomic.Pointer[Model], modelProbe)
			t.slots.CompareAndSwap(nil, &fresh)
			continue
		}
		m := &Model{key: key, name: strings.Clone(name)} // a name read from a message may pin all of it
		mask := uint64(len(*slots) - 1)
		oldest, oldestUsed := key&mask, int64(math.MaxInt64)
		for i := range uint64(modelProbe) {
			at := (key + i) & mask
			held := (*slots)[at].Load()
			if held == nil {
				if (*slots)[at].CompareAndSwap(nil, m) {
					return m
				}
				held = (*slots)[at].Load()
				if held.key == key {
					return held
				}
			}
			if u := held.used.Load(); u < oldestUsed {
				oldest, oldestUsed = at, u
			}
		}
		if len(*slots) < maxModels {
			t.grow(slots)
			continue
		}
		(*slots)[oldest].Store(m)
		return m
	}
}

// grow replaces the slots by twice as many.
func (t *modelTable) grow(old *[]atomic.Pointer[Model]) {
	fresh := make([]atomic.Pointer[Model], 2*len(*old))
	mask := uint64(len(fresh) - 1)
	for i := range *old {
		m := (*old)[i].Load()
		if m == nil {
			continue
		}
		for j := range uint64(modelProbe) {
			if slot := &fresh[(m.key+j)&mask]; slot.Load() == nil {
				slot.Store(m)
				break
			}
		}
	}
	t.slots.CompareAndSwap(old, &fresh)
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

// usedUnit is how exactly it is known when a model was last used, in nanoseconds, where calls do not tell: every message of a stream does.
const usedUnit = int64(time.Second)

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

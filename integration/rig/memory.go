package rig

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/mlbalancer/mlbalancer/health/gpustats/server"
	gpb "github.com/mlbalancer/mlbalancer/proto/mlbalancer/gpustats/v1"
)

// Keeping says how a server keeps models.
type Keeping struct {
	// Slots is how many models fit into memory. 0: any number.
	Slots int
	// Load is how long a load takes that a call leads to; there is one at a time. 0: the server loads nothing on demand, and answers calls for
	// models that it does not have with NOT_FOUND.
	Load time.Duration
	// Workers is how many calls the server works on at a time. 0: any number, and it does not say.
	Workers int
}

// Memory is where a server keeps its models. What is in it, and how busy the server is, it says by mlbalancer.gpustats.v1. It is safe for
// concurrent use.
type Memory struct {
	keeping Keeping
	stats   *server.Server
	workers chan struct{} // one for each call that is worked on
	lane    chan struct{} // full while a model is being loaded

	mu      sync.Mutex
	changed chan struct{} // closed when a model has come or gone, or is idle
	models  map[string]*kept
	active  int // calls that are worked on or wait for a worker
	waiting int // calls that wait for a worker or for a load
	free    time.Time
	loads   int
	came    map[string]int
}

// kept is a model in memory, or on its way there.
type kept struct {
	ready   bool
	readyAt time.Time // while it is not; zero while it waits for its turn
	used    time.Time
	calls   int
}

// Keeps makes the server keep models, some of them from the beginning on. Calls that name a model wait for it, and for a worker, before its
// handler sees them.
func (b *Backend) Keeps(k Keeping, models ...string) *Memory {
	m := &Memory{
		keeping: k, stats: server.New(server.Options{}), lane: make(chan struct{}, 1), changed: make(chan struct{}),
		models: map[string]*kept{}, came: map[string]int{},
	}
	if k.Workers > 0 {
		m.workers = make(chan struct{}, k.Workers)
	}
	for _, name := range models {
		m.models[name] = &kept{ready: true, used: time.Now()}
	}
	m.stats.UpdateFunc(m.report)
	b.Answers(GPUStats, func(stream grpc.ServerStream) error {
		var req gpb.WatchRequest
		if err := stream.RecvMsg(&req); err != nil {
			return err
		}
		return m.stats.Watch(&req, &grpc.GenericServerStream[gpb.WatchRequest, gpb.NodeReport]{ServerStream: stream})
	})
	b.memory.Store(m)
	return m
}

// Has puts a model into memory at once.
func (m *Memory) Has(model string) {
	m.update(func() { m.models[model] = &kept{ready: true, used: time.Now()} })
}

// Lacks removes a model from memory at once. Calls under way for it are answered.
func (m *Memory) Lacks(model string) { m.update(func() { delete(m.models, model) }) }

// Holds reports whether a model is in memory.
func (m *Memory) Holds(model string) (yes bool) {
	m.look(func() { k := m.models[model]; yes = k != nil && k.ready })
	return yes
}

// Loads returns how many loads calls have led to so far.
func (m *Memory) Loads() (n int) {
	m.look(func() { n = m.loads })
	return n
}

// Came returns how many calls for a model have come so far.
func (m *Memory) Came(model string) (n int) {
	m.look(func() { n = m.came[model] })
	return n
}

func (m *Memory) look(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

// update changes something that is to be reported.
func (m *Memory) update(f func()) {
	m.look(func() {
		f()
		close(m.changed)
		m.changed = make(chan struct{})
	})
	m.stats.UpdateFunc(m.report)
}

// serve does the work of a call once its model is in memory and it is its turn.
func (m *Memory) serve(ctx context.Context, model string, work func() error) error {
	var k *kept
	m.update(func() {
		m.came[model]++
		if k = m.models[model]; k == nil && m.keeping.Load > 0 {
			k = &kept{}
			m.models[model] = k
			m.loads++
			go m.load(k)
		}
		if k == nil {
			return
		}
		k.calls++
		m.waiting++
	})
	if k == nil {
		return status.Errorf(codes.NotFound, "Request for unknown model: '%s' is not found", model)
	}
	defer m.update(func() { k.calls--; k.used = time.Now() })
	if err := m.await(ctx, func() bool { return k.ready }); err != nil {
		m.update(func() { m.waiting-- })
		return err
	}
	m.update(func() { m.active++ })
	defer m.update(func() { m.active-- })
	if m.workers != nil {
		select {
		case m.workers <- struct{}{}:
			defer func() { <-m.workers }()
		case <-ctx.Done():
			m.update(func() { m.waiting-- })
			return status.FromContextError(ctx.Err()).Err()
		}
	}
	m.update(func() { m.waiting-- })
	return work()
}

// load brings a model into memory, once it is its turn and there is room.
func (m *Memory) load(k *kept) {
	m.lane <- struct{}{}
	defer func() { <-m.lane }()
	_ = m.await(context.Background(), m.room) // it has no deadline
	m.update(func() {
		m.free = time.Now().Add(m.keeping.Load)
		k.readyAt = m.free
	})
	_ = Wait(context.Background(), m.keeping.Load)
	m.update(func() { k.ready = true; k.used = time.Now() })
}

// room makes room for another model, and reports whether there is. Caller must hold the lock.
func (m *Memory) room() bool {
	if m.keeping.Slots == 0 || m.inMemory() < m.keeping.Slots {
		return true
	}
	name, k := m.victim()
	if k == nil || k.calls > 0 {
		return false
	}
	delete(m.models, name)
	return true
}

// inMemory counts the models that take up memory. Caller must hold the lock.
func (m *Memory) inMemory() (n int) {
	for _, k := range m.models {
		if k.ready || !k.readyAt.IsZero() {
			n++
		}
	}
	return n
}

// victim returns the model that has to leave first: the one that was used least recently of those that are idle, or else of all. Caller must hold
// the lock.
func (m *Memory) victim() (name string, first *kept) {
	for n, k := range m.models {
		if k.ready && (first == nil || (k.calls > 0) != (first.calls > 0) && k.calls == 0 ||
			(k.calls > 0) == (first.calls > 0) && k.used.Before(first.used)) {
			name, first = n, k
		}
	}
	return name, first
}

// await waits until a condition holds, which is looked at under the lock.
func (m *Memory) await(ctx context.Context, holds func() bool) error {
	for {
		m.mu.Lock()
		ok, changed := holds(), m.changed
		m.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}

// report is what the server says of itself now.
func (m *Memory) report() *gpb.NodeReport {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	r := &gpb.NodeReport{
		State:          gpb.ServerState_SERVER_STATE_READY.Enum(),
		InFlight:       proto.Int64(int64(m.active)),
		Waiting:        proto.Int64(int64(m.waiting)),
		ModelsComplete: proto.Bool(true),
		LoadsOnDemand:  proto.Bool(m.keeping.Load > 0),
	}
	if m.keeping.Workers > 0 {
		r.Concurrency = proto.Int64(int64(m.keeping.Workers))
	}
	for name, k := range m.models {
		x := &gpb.Model{Name: proto.String(name), State: gpb.ModelState_MODEL_STATE_READY.Enum()}
		if !k.ready {
			eta := m.keeping.Load
			if !k.readyAt.IsZero() {
				eta = max(0, k.readyAt.Sub(now))
			}
			x.State, x.LoadEta = gpb.ModelState_MODEL_STATE_LOADING.Enum(), durationpb.New(eta)
		}
		r.Models = append(r.Models, x)
	}
	if m.keeping.Load == 0 {
		return r
	}
	r.LaneFreeIn, r.LoadTime = durationpb.New(max(0, m.free.Sub(now))), durationpb.New(m.keeping.Load)
	r.Victim = m.reportVictim(now)
	return r
}

// reportVictim says what another load would push out. Caller must hold the lock.
func (m *Memory) reportVictim(now time.Time) *gpb.Victim {
	if m.keeping.Slots == 0 || m.inMemory() < m.keeping.Slots {
		return &gpb.Victim{Kind: gpb.Victim_KIND_ROOM.Enum()}
	}
	name, k := m.victim()
	if k == nil || k.calls > 0 {
		return &gpb.Victim{Kind: gpb.Victim_KIND_BUSY.Enum(), Model: proto.String(name)}
	}
	return &gpb.Victim{Kind: gpb.Victim_KIND_IDLE.Enum(), Model: proto.String(name), LastUsedAge: durationpb.New(now.Sub(k.used))}
}

package picker

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mlbalancer/mlbalancer/health"
)

// residency is where models are, as far as servers have said: for each that some server holds or loads, the endpoints that do. Picks
// read it without a lock.
type residency struct {
	mu       sync.Mutex
	byModel  atomic.Pointer[directory]
	copied   atomic.Int64 // copies of all models
	distinct atomic.Int64 // models of which there is a copy
	informed atomic.Bool  // enough servers say which models they hold, and often enough
}

// maxPlacements bounds the models whose placement is kept. They are those that servers have reported, and servers may report what they like.
const maxPlacements = 1 << 14

// placement is where one model is, and how it does.
type placement struct {
	holders atomic.Pointer[holders] // ascending by the endpoints' keys
	service average                 // how long it takes, without waiting
	credit  credit
	demand  demand
	lost    atomic.Int64 // when the last of its holders was heard to hold it no longer; 0 if that has not been
}

// holder is an endpoint that holds or loads a model.
type holder struct {
	endpoint *Endpoint
	model    *Model
}

// holders are those of one model. A few are kept in place, so that a pick finds all in one cache line.
type holders struct {
	few  [3]holder
	n    int       // of few
	many *[]holder // instead of few if there are more
}

func holdersOf(all []holder) *holders {
	h := &holders{}
	if len(all) > len(h.few) {
		h.many = &all
	} else {
		h.n = copy(h.few[:], all)
	}
	return h
}

// all returns them. The slice is not to be changed.
func (h *holders) all() []holder {
	if h.many != nil {
		return *h.many
	}
	return h.few[:h.n]
}

// held returns the endpoints that hold or load the model. The slice is not to be changed.
func (p *placement) held() []holder { return p.holders.Load().all() }

// opening is a load that this client has caused and that no report has confirmed or denied.
type opening struct {
	model    atomic.Uint64 // its key; 0 if there is none
	endpoint atomic.Pointer[Endpoint]
	at       atomic.Int64 // when it was asked for
	readyAt  atomic.Int64 // when it should be done
}

const (
	// openingSlots bounds the openings that are remembered, to 16 KiB for each channel, and openingProbe those of one model. A new one takes the place of
	// the oldest of a few. The models need not be known: the first calls for one come before its server speaks of it.
	openingSlots = 512
	openingProbe = 8
	// confirmedAfter is how much younger than a request a report must be to know of it.
	confirmedAfter = int64(20 * time.Millisecond)
	// openingFor is for how long after it should be done a load is believed in that no server speaks of.
	openingFor = int64(10 * time.Second)
)

// openings are what this client has had loaded and has not heard of. Who reads one that is being replaced takes one load for another, for one pick.
type openings struct {
	until atomic.Int64 // when none is valid any more
	slots [openingSlots]opening
}

func (os *openings) slot(model uint64, i int) *opening {
	return &os.slots[(model>>32+uint64(i))%openingSlots]
}

// valid reports whether nothing has been heard of the endpoint since.
func (o *opening) valid(e *Endpoint, now int64) bool {
	return e.facts.at.Load() < o.at.Load()+confirmedAfter && now < o.readyAt.Load()+openingFor
}

// of returns the endpoint of the i-th opening, if that is one of a model, or nil.
func (os *openings) of(model uint64, i int, now int64) (o *opening, e *Endpoint) {
	o = os.slot(model, i)
	if o.model.Load() != model {
		return o, nil
	}
	if e = o.endpoint.Load(); e == nil || !o.valid(e, now) {
		return o, nil
	}
	return o, e
}

// add notes that a load of a model has been asked for.
func (os *openings) add(model uint64, e *Endpoint, now int64, ready float64) {
	oldest := os.slot(model, 0)
	for i := range openingProbe {
		o := os.slot(model, i)
		if o.model.Load() == model && o.endpoint.Load() == e {
			oldest = o
			break
		}
		if o.at.Load() < oldest.at.Load() {
			oldest = o
		}
	}
	oldest.model.Store(0)
	oldest.endpoint.Store(e)
	oldest.at.Store(now)
	oldest.readyAt.Store(now + int64(ready))
	oldest.model.Store(model)
	if until := now + int64(ready) + openingFor; until > os.until.Load() {
		os.until.Store(until)
	}
}

// holds reports whether an endpoint holds a model or is having it loaded, by what its server says or this client has done.
func (g *Guard) holds(e *Endpoint, model uint64, now int64) bool {
	if m := e.models.get(model); m != nil && present(m.State()) {
		return true
	}
	for i := range openingProbe {
		if _, opened := g.openings.of(model, i, now); opened == e {
			return true
		}
	}
	return false
}

// adrift reports whether a model may have moved since servers were asked: all that are said to hold it have answered that they do not, or nobody
// is said to any more and somebody was lately.
func (g *Guard) adrift(key uint64, now int64) bool {
	p := g.residency.get(key)
	if p == nil {
		return false
	}
	hs := p.held()
	if len(hs) == 0 {
		return now-p.lost.Load() < int64(g.health.Load().StaleAfter)
	}
	return !slices.ContainsFunc(hs, func(h holder) bool { return !g.absent.absent(h.endpoint, key, now) })
}

// get returns the placement of a model, or nil if no server has spoken of it.
func (r *residency) get(key uint64) *placement {
	return r.byModel.Load().get(key)
}

// shift changes a residency. It takes the lock when there is a first change, and done gives it back.
type shift struct {
	*residency
	now   int64
	fresh *directory // nil while no model has come or gone
	held  bool
}

// moved notes that the state of a model on an endpoint has changed.
func (d *shift) moved(e *Endpoint, m *Model, from, to health.ModelState) {
	was, is := present(from), present(to)
	if was == is {
		return
	}
	if !d.held {
		d.mu.Lock()
		d.held = true
	}
	p := d.placement(m.key, is)
	if p == nil {
		return
	}
	var hs []holder
	if old := p.holders.Load(); old != nil {
		hs = slices.DeleteFunc(slices.Clone(old.all()), func(h holder) bool { return h.endpoint == e })
	}
	if is {
		at, _ := position(hs, e.key)
		hs = slices.Insert(hs, at, holder{e, m})
	}
	before := len(p.held())
	p.holders.Store(holdersOf(hs))
	d.copied.Add(int64(len(hs) - before))
	switch {
	case before == 0 && len(hs) > 0:
		d.distinct.Add(1)
	case before > 0 && len(hs) == 0:
		d.distinct.Add(-1)
		p.lost.Store(d.now)
	}
}

// chain returns how many loads one more copy leads to where memory is full: it pushes out a model that will be loaded again, which pushes out another,
// until it is one that nobody misses.
func (r *residency) chain() float64 {
	held := float64(r.copied.Load())
	return min(maxChain, max(1, held/max(1, held-float64(r.distinct.Load()))))
}

// maxChain bounds the loads that are held against one: where every load pushes out a model that will be missed, there is no getting round them.
const maxChain = 5

// placement returns that of a model, made if need be and wanted.
func (d *shift) placement(key uint64, make bool) *placement {
	m := d.fresh
	if m == nil {
		m = d.byModel.Load()
	}
	p := m.get(key)
	if p != nil || !make {
		return p
	}
	if d.fresh == nil {
		full := m != nil && m.n >= maxPlacements
		d.fresh = m.copy(func(p *placement) bool { return !full || len(p.held()) > 0 })
	}
	p = &placement{}
	p.holders.Store(&holders{})
	if d.fresh.n < maxPlacements {
		d.fresh.put(key, p)
	}
	return p
}

func (d *shift) done() {
	if !d.held {
		return
	}
	if d.fresh != nil {
		d.byModel.Store(d.fresh)
	}
	d.mu.Unlock()
}

// present reports whether a model in a state is in memory, or on its way there.
func present(s health.ModelState) bool { return s == health.ModelReady || s == health.ModelLoading }

// copies returns how many endpoints hold a model ready.
func (r *residency) copies(key uint64) int {
	p := r.get(key)
	if p == nil {
		return 0
	}
	n := 0
	for _, h := range p.held() {
		if h.model.State() == health.ModelReady {
			n++
		}
	}
	return n
}

// average is an exponentially weighted moving average by count.
type average struct {
	bits atomic.Uint64 // float64; 0 before the first
}

func (a *average) value() float64 { return math.Float64frombits(a.bits.Load()) }

// add takes x in with a weight. Of two at the same moment one may be lost.
func (a *average) add(x, weight float64) {
	old := a.bits.Load()
	v := math.Float64frombits(old)
	if old == 0 {
		v = x
	}
	a.bits.CompareAndSwap(old, math.Float64bits(v+weight*(x-v)))
}

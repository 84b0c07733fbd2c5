package picker

import (
	"sync/atomic"
	"time"

	"github.com/mlbalancer/mlbalancer/breaker"
	"github.com/mlbalancer/mlbalancer/health"
)

// Endpoint is one server as its clients know it, for as long as the resolver lists it: through reconnects, readiness changes and
// rebuilt tables. All its methods are safe for concurrent use; none locks, and only what is new of a model allocates.
type Endpoint struct {
	// What a pick reads of each endpoint that it considers is in two cache lines. The first one is seldom written. It is 8 bytes short, which the
	// runtime puts before an object of this size.
	breaker       *breaker.Breaker
	key           uint64 // Key(id)
	standing      atomic.Uint32
	slot          atomic.Int32 // where it is in its channel's tables
	drainingUntil atomic.Int64
	life          atomic.Uint64 // counts connections
	connectedAt   atomic.Int64  // when the present one was made; 0 before the first
	faulty        atomic.Bool   // a model has a breaker that must be asked

	// The second one begins here. It and what follows is written by every call.
	load    atomic.Uint64
	slow    drag
	facts   facts
	loads   loads
	latency peakEWMA
	work    decayingSum
	picks   [NumReasons]atomic.Uint64
	vitals  health.Vitals
	_       [64]byte

	id           string
	rampAt       atomic.Int64 // when its slow start began
	rampFor      atomic.Int64 // and how long it is
	pressedUntil atomic.Int64
	lostModel    atomic.Uint64 // key of the last model that was lost
	lostAt       atomic.Int64
	forecast     atomic.Uint64 // float64: see foreseen
	due          float64       // work that a forecast has dealt to it so far, in workers; of Watch alone
	tripped      bool          // its breaker was not closed at the last look at it
	score        health.Score
	models       modelTable
	reports      reports
}

// NewEndpoint returns an endpoint with an identity: the name that the resolver gives it, or its addresses.
func NewEndpoint(id string) *Endpoint {
	e := &Endpoint{id: id, key: Key(id), breaker: breaker.New(id)}
	e.breaker.OnHang(e.hangs)
	return e
}

// ID returns the endpoint's identity.
func (e *Endpoint) ID() string { return e.id }

// The calls in flight and their cost share one word, so that a pick and its end are one atomic addition each.
const (
	loadCostBits = 40
	loadOneCall  = 1 << loadCostBits
	loadCostMask = loadOneCall - 1
)

// Begin counts a call of the given cost in, and why it was sent here.
func (e *Endpoint) Begin(cost uint32, reason Reason) {
	e.load.Add(loadOneCall + uint64(cost))
	e.picks[reason].Add(1)
}

// End counts a call out again; cost is what Begin was given.
func (e *Endpoint) End(cost uint32) { e.load.Add(-(loadOneCall + uint64(cost))) }

// Unpick takes a Begin back whose call never happened: End, and the reason uncounted.
func (e *Endpoint) Unpick(cost uint32, reason Reason) {
	e.End(cost)
	e.picks[reason].Add(^uint64(0))
}

// InFlight returns the number of this client's calls on the endpoint now.
func (e *Endpoint) InFlight() int { return int(e.load.Load() >> loadCostBits) }

// CostInFlight returns the cost of this client's calls on the endpoint now, in tokens.
func (e *Endpoint) CostInFlight() int64 { return int64(e.load.Load() & loadCostMask) }

// working returns the number and the cost of this client's calls that keep the endpoint busy: all in flight but those of a model
// that hangs there while others do not. Of these no more is known than how many they are, so each counts as the mean.
func (e *Endpoint) working() (calls, cost int64) {
	load := e.load.Load()
	calls, cost = int64(load>>loadCostBits), int64(load&loadCostMask)
	if stuck := min(int64(e.breaker.Stuck()), calls); stuck > 0 {
		cost -= cost / calls * stuck
		calls -= stuck
	}
	return calls, cost
}

// Picks returns how many calls were sent here for a reason.
func (e *Endpoint) Picks(r Reason) uint64 { return e.picks[r].Load() }

// Observe notes the latency of a call that ended at now. A longer one than the estimate counts at once, a shorter one
// in proportion to the time since the last.
func (e *Endpoint) Observe(now int64, latency time.Duration) {
	e.latency.observe(now, float64(latency))
}

// Latency returns the peak-EWMA latency in nanoseconds as of the last observation, and 0 before the first.
func (e *Endpoint) Latency() float64 { return e.latency.value() }

// latencyToward returns the latency estimate after it has relaxed towards base for as long as nothing was observed: an
// endpoint that is no longer asked must not look slow for ever, nor, while its slow calls are still under way, better than others.
// It is never below base unless the estimate itself is.
func (e *Endpoint) latencyToward(base float64, now int64) float64 {
	v := e.latency.value()
	if v <= base {
		return v
	}
	return base + (v-base)*e.latency.decay(now, v)
}

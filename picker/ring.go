package picker

import (
	"math"
	"slices"
	"sync"
)

func init() {
	Register(func() Options { return &RingOptions{VirtualNodes: 150, Replicas: 2, LoadFactor: 1.25} })
}

// RingOptions configures the strategy "ring": consistent hashing with bounded loads. A model's calls go to the endpoint whose
// point on the ring follows the model's hash, its home; to the next endpoints along the ring, its replicas, when those before
// are over their bound or unusable; and beyond the replicas when all of them are.
//
// The ring depends on the identities and weights of the endpoints alone: all clients agree on it, and whether an endpoint is
// connected does not change it. When endpoints come and go, the models of those that stay do not move.
type RingOptions struct {
	// VirtualNodes is the number of points on the ring of an endpoint of weight 1, from 1 to 100,000; default 150. The shares of
	// endpoints of equal weight differ by about 1/sqrt(VirtualNodes). An endpoint of weight w > 0 has VirtualNodes x w points,
	// at least 1 and at most 100 x VirtualNodes. A point takes 14 to 16 bytes.
	VirtualNodes int `json:"virtualNodes,omitempty"`
	// Replicas is how many endpoints share a model, its home included, from 1 to 16; default 2. A model takes memory on each of
	// them. One that is hot enough for more than 16 is everywhere, and better served by load alone.
	Replicas int `json:"replicas,omitempty"`
	// LoadFactor bounds the cost in flight of an endpoint to a multiple of the mean (per weight), above 1 and up to 100;
	// default 1.25. Endpoints with less in flight than the servers work off while a model loads are not bound by it.
	LoadFactor float64 `json:"loadFactor,omitempty"`
}

// Strategy implements Options.
func (o *RingOptions) Strategy() string { return "ring" }

// Validate implements Options.
func (o *RingOptions) Validate() error {
	switch {
	case o.VirtualNodes < 1 || o.VirtualNodes > 100_000:
		return BadField("virtualNodes", o.VirtualNodes, "1 to 100000")
	case o.Replicas < 1 || o.Replicas > 16:
		return BadField("replicas", o.Replicas, "1 to 16")
	case !(o.LoadFactor > 1 && o.LoadFactor <= 100):
		return BadField("loadFactor", o.LoadFactor, "above 1, up to 100")
	}
	return nil
}

// Build implements Options.
func (o *RingOptions) Build(b Build) Strategy {
	nodes := make([]node, len(b.Members))
	for i, m := range b.Members {
		if n := o.pointsOf(m.Weight); m.Endpoint != nil && n > 0 {
			nodes[i] = node{m.ID(), n}
		}
	}
	r := &ring{replicas: o.Replicas, loadFactor: o.LoadFactor}
	if prev, ok := b.Previous.(*ring); ok {
		r.points = prev.points.update(nodes)
	} else {
		r.points = newPoints(nodes)
	}
	r.share = sync.OnceValue(r.shares)
	return r
}

// maxPointsWeight is the weight above which an endpoint gets no more points, so that a weight in some other unit (memory in
// bytes, say) cannot exhaust the client's memory.
const maxPointsWeight = 100

// pointsOf returns how many points a weight is worth. Any weight above 0 is worth one.
func (o *RingOptions) pointsOf(weight float64) int {
	if !(weight > 0) {
		return 0
	}
	return max(1, int(math.Round(float64(o.VirtualNodes)*min(weight, maxPointsWeight))))
}

// Sending a call past the endpoint that holds its model loads the model elsewhere, and that is what it must be weighed against. A bound
// on the number of calls alone overflows at a handful of them, and each overflow is a load, which pushes another model out: thousands
// in a few minutes, on a fleet that needs none. So a model that a replica would not be kept busy by stays at home until the queue there is
// longer than all of that takes. The floors are costs in flight of this client per weight, below which an endpoint is never over
// its bound.
const (
	serverWorkers = 4
	loadServices  = 20 // the time of a load, in service times

	// shareFloor counts for models that are hot: as many requests waiting as a server works on.
	shareFloor = 2 * serverWorkers * DefaultTokens
	// overflowFloor counts for all others, and for endpoints beyond the replicas: what a server serves in the time of four loads, that of the
	// model, that of the one which it pushes out, and both again on the way back.
	overflowFloor = 4 * serverWorkers * loadServices * DefaultTokens

	// hotShare is how much of an endpoint a model must fill to be hot, where 1 is what the mean endpoint does. A model below it is
	// not worth the memory that a replica takes; the figure depends neither on how many clients share the traffic nor on
	// how busy the fleet is.
	hotShare = 0.4
)

// ring is the strategy of RingOptions for one membership.
type ring struct {
	*points
	replicas   int
	loadFactor float64
	share      func() []float64
}

// Owner returns the index of the member that is the home of a key (see Key), or -1 if no member has points.
func (r *ring) Owner(key uint64) int {
	if len(r.hashes) == 0 {
		return -1
	}
	return int(r.owners[r.home(key)])
}

// Share returns the part of all keys whose home is the member at an index, from 0 to 1. The first call computes all shares.
func (r *ring) Share(i int) float64 { return r.share()[i] }

// Pick implements Strategy.
func (r *ring) Pick(t *Table, q *Query) Choice {
	at := r.home(q.Key)
	home := r.owners[at]
	if t.usable(home, q) && ramped(t.members[home].Endpoint, q) && r.accepts(t, home, q) {
		return Choice{Index: int(home), Reason: Home}
	}
	return r.walk(t, q, at)
}

// accepts reports whether one more request leaves the member at i within its bound. Only above the floor does it ask for more
// than the load of one endpoint.
func (r *ring) accepts(t *Table, i uint32, q *Query) bool {
	m := &t.members[i]
	load := float64(m.loadAt(q.Now))
	if load < shareFloor*m.Weight {
		return true
	}
	own := float64(q.Cost())
	mean := t.costPerWeight(q.Now) + own/t.weight
	return load+own <= r.loadFactor*mean*m.Weight
}

const (
	// maxSeen is how many endpoints a walk along the ring looks at. A bound that admits 1.25 times the mean leaves more than a
	// fifth of the endpoints below it: 64 in a row above it do not happen.
	maxSeen = 64
	// maxSteps is how many points a walk passes; more than maxSeen, since endpoints of large weight are met again and again.
	maxSteps = 16 * maxSeen
)

// walk goes through the distinct endpoints along the ring from the point at a position until one accepts the request. Whichever of them are
// usable stand in for those that are not: the first usable one is the home of its time, and as many as there are replicas share a
// hot model.
func (r *ring) walk(t *Table, q *Query, at int) Choice {
	var seen [maxSeen]uint32
	n, usable := 0, 0
	best, bestLoad := Choice{Index: -1}, 0.0
	standby := best // usable, though it is not to have the model back or at all yet
	work := 0.0     // that the usable ones have done for the model
	for range min(maxSteps, len(r.hashes)) {
		if n == maxSeen || n == r.owned || usable >= r.replicas && bestLoad < overflowFloor {
			break
		}
		i := r.owners[at]
		if at++; at == len(r.hashes) {
			at = 0
		}
		if slices.Contains(seen[:n], i) {
			continue
		}
		seen[n] = i
		reason := r.rank(n)
		n++
		m := &t.members[i]
		if !t.usable(i, q) || !ramped(m.Endpoint, q) {
			if standby.Index < 0 && t.usable(i, q) {
				standby = Choice{Index: int(i), Reason: reason}
			}
			if t.status[i] == Pending && reason != Overflow && usable == 0 && m.Weight > 0 && !q.Avoids(m.Endpoint) {
				return Choice{Index: -1, Reason: Wait}
			}
			continue
		}
		full := usable > 0 && bestLoad >= overflowFloor
		if (usable == 0 || full) && r.accepts(t, i, q) {
			return Choice{Index: int(i), Reason: reason}
		}
		work += m.workFor(q.Key, q.Now)
		load := float64(m.loadAt(q.Now)) / m.Weight
		if usable == 0 || load < bestLoad && usable < r.replicas && (full || t.share(work, q.Now) >= hotShare) {
			best, bestLoad = Choice{Index: int(i), Reason: reason}, load
		}
		usable++
	}
	switch {
	case usable > 0:
		return best
	case standby.Index >= 0:
		return standby
	}
	return r.leastLoaded(t, q)
}

// rank returns the reason for choosing the n-th distinct endpoint of a walk, from 0.
func (r *ring) rank(n int) Reason {
	switch {
	case n == 0:
		return Home
	case n < r.replicas:
		return Replica
	}
	return Overflow
}

// leastLoaded chooses among all ready endpoints, for a walk that met none.
func (r *ring) leastLoaded(t *Table, q *Query) Choice {
	best, bestLoad := -1, math.Inf(1)
	for _, i := range t.ready {
		if m := &t.members[i]; t.admits(m.Endpoint, q) {
			if load := float64(m.loadAt(q.Now)) / m.Weight; load < bestLoad {
				best, bestLoad = int(i), load
			}
		}
	}
	if best < 0 {
		return t.refuse()
	}
	return Choice{Index: best, Reason: Overflow}
}

// ramped reports whether an endpoint that has recovered, or is new, may have the request's model: the models whose hash, mixed with its own, is
// below its ramp come first, and nothing else moves.
func ramped(e *Endpoint, q *Query) bool {
	ramp := e.ramp(q.Now)
	return ramp >= 1 || unit((q.Key^e.key)*0x9e3779b97f4a7c15) < ramp
}

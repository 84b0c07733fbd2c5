package sim

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/mlbalancer/mlbalancer/picker"
)

// ringPoints is the number of points on a ring: the most that gRPC's ring_hash has by default.
const ringPoints = 4096

// hashRing is a ring of servers.
type hashRing struct {
	f      *Fleet
	points []ringPoint
	homes  []int32   // by model
	orders [][]int32 // of distinct servers by model, filled as they are asked for
}

type ringPoint struct {
	hash   uint64
	server int32
}

// build makes the ring anew.
func (r *hashRing) build(f *Fleet, members []int32) {
	r.f, r.points = f, r.points[:0]
	each := max(1, ringPoints/len(members))
	for _, i := range members {
		for k := range each {
			r.points = append(r.points, ringPoint{picker.Key(fmt.Sprintf("%s_%d", f.hosts[i], k)), i})
		}
	}
	slices.SortFunc(r.points, func(a, b ringPoint) int { return cmp.Compare(a.hash, b.hash) })
	r.homes, r.orders = make([]int32, len(f.names)), make([][]int32, len(f.names))
	for m := range r.homes {
		r.homes[m] = r.points[r.at(m)].server
	}
}

func (r *hashRing) at(m int) int {
	at := sort.Search(len(r.points), func(i int) bool { return r.points[i].hash >= r.f.keys[m] })
	return at % len(r.points)
}

// order returns all servers in the order of their first points after a model's hash.
func (r *hashRing) order(m int32) []int32 {
	if o := r.orders[m]; o != nil {
		return o
	}
	seen := make([]bool, len(r.f.servers))
	var o []int32
	at := r.at(int(m))
	for i := range r.points {
		p := r.points[(at+i)%len(r.points)]
		if !seen[p.server] {
			seen[p.server] = true
			o = append(o, p.server)
		}
	}
	r.orders[m] = o
	return o
}

// ringHash is the baseline ring_hash. A server that may not be used stays on the ring, and the next one takes its calls.
type ringHash struct {
	quiet
	hashRing
	barred []bool // by server; nil if none is
}

func newRingHash(f *Fleet) Policy {
	r := &ringHash{}
	r.build(f, f.members)
	return r
}

// Place implements Policy.
func (r *ringHash) Place(_ time.Duration, c *Call) int {
	if r.barred == nil {
		return int(r.homes[c.Model])
	}
	for _, i := range r.order(c.Model) {
		if !r.barred[i] {
			return int(i)
		}
	}
	return int(r.homes[c.Model])
}

// Changed implements Policy.
func (r *ringHash) Changed(time.Duration) { r.build(r.f, r.f.members) }

func (r *ringHash) restrict(members []int32) {
	r.barred = nil
	if len(members) == len(r.f.members) {
		return
	}
	r.barred = make([]bool, len(r.f.servers))
	for i := range r.barred {
		_, ok := slices.BinarySearch(members, int32(i))
		r.barred[i] = !ok
	}
}

// ringK3 is the baseline ring_k3.
type ringK3 struct{ ringHash }

func newRingK3(f *Fleet) Policy {
	r := &ringK3{}
	r.build(f, f.members)
	return r
}

// Place implements Policy.
func (r *ringK3) Place(_ time.Duration, c *Call) int {
	o := r.order(c.Model)
	a, b := r.f.two(o[:min(3, len(o))])
	own := r.f.inFlight(c.Client)
	if own[b] < own[a] {
		return int(b)
	}
	return int(a)
}

// boundFactor is how many times the mean load a server may have in the baselines bounded and bounded_global.
const boundFactor = 1.25

// bounded is the baselines bounded and bounded_global.
type bounded struct {
	ringHash
	global bool
	sums   []int32 // calls in flight by client
	loads  []int32 // calls in flight by server
	all    int32
}

func newBounded(f *Fleet) Policy       { return bound(f, false) }
func newBoundedGlobal(f *Fleet) Policy { return bound(f, true) }

func bound(f *Fleet, global bool) *bounded {
	b := &bounded{global: global, sums: make([]int32, f.Clients), loads: make([]int32, len(f.servers))}
	b.build(f, f.members)
	return b
}

// Place implements Policy.
func (b *bounded) Place(_ time.Duration, c *Call) int {
	load, sum := b.f.inFlight(c.Client), b.sums[c.Client]
	if b.global {
		load, sum = b.loads, b.all
	}
	limit := int32(math.Ceil(boundFactor * float64(sum+1) / float64(len(b.f.members))))
	for _, i := range b.order(c.Model) {
		if load[i] < limit {
			b.count(c.Client, i, 1)
			return int(i)
		}
	}
	i := b.homes[c.Model] // calls on servers that have left may fill the mean
	b.count(c.Client, i, 1)
	return int(i)
}

func (b *bounded) count(client, server, n int32) {
	b.sums[client] += n
	b.loads[server] += n
	b.all += n
}

// Done implements Policy.
func (b *bounded) Done(_ time.Duration, c *Call, _ Outcome) { b.count(c.Client, c.Server, -1) }

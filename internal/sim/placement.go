package sim

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// placement is which servers hold which models.
type placement struct {
	work    []float64 // servers that each model keeps busy
	slots   int
	pinned  int       // models below it stay in memory; others share what is left, each on one server
	holders [][]int32 // by model
	held    [][]int32 // by server
	load    []float64 // scratch: by server
}

// newPlacement gives each model a server, and the hottest as many as there is room for, so that the load of one replica is as even as
// it can be; then it puts them on the servers with the least load.
func newPlacement(work []float64, servers, slots int) *placement {
	p := &placement{
		work: work, slots: slots, pinned: len(work), holders: make([][]int32, len(work)), held: make([][]int32, servers),
		load: make([]float64, servers),
	}
	room := servers * slots
	if len(work) > room {
		p.pinned = servers * (slots - 1)
	}
	replicas := make([]int, len(work))
	for m := range replicas {
		replicas[m] = 1
	}
	for n := room - p.pinned; n > 0 && p.pinned == len(work); n-- {
		most := -1
		for m, w := range work {
			if replicas[m] < servers && (most < 0 || w/float64(replicas[m]) > work[most]/float64(replicas[most])) {
				most = m
			}
		}
		if most < 0 {
			break
		}
		replicas[most]++
	}
	order := make([]int, len(work))
	for m := range order {
		order[m] = m
	}
	slices.SortStableFunc(order[:p.pinned], func(a, b int) int {
		return cmp.Compare(work[b]/float64(replicas[b]), work[a]/float64(replicas[a]))
	})
	for _, m := range order {
		for range replicas[m] {
			p.put(m, work[m]/float64(replicas[m]))
		}
	}
	return p
}

// put adds a replica to the server with the least load that has room and does not hold the model.
func (p *placement) put(m int, work float64) {
	best := -1
	for i := range p.held {
		if m < p.pinned && len(p.held[i]) >= p.slots || slices.Contains(p.held[i], int32(m)) {
			continue
		}
		if best < 0 || p.load[i] < p.load[best] {
			best = i
		}
	}
	if best < 0 {
		return
	}
	p.load[best] += work
	p.held[best] = append(p.held[best], int32(m))
	p.holders[m] = append(p.holders[m], int32(best))
}

// improveSteps is how many changes improve tries.
const improveSteps = 4000

// improve tries random exchanges of models between servers, and keeps those that make the loads more even. Only placements with
// more than one holder for some model, and of fleets that are not too large, are worth it.
func (p *placement) improve(r *rand.Rand) {
	if p.pinned < len(p.work) || len(p.held) > 64 {
		return
	}
	cost := p.cost()
	for range improveSteps {
		a, b := r.IntN(len(p.held)), r.IntN(len(p.held))
		if a == b || len(p.held[a]) == 0 || len(p.held[b]) == 0 {
			continue
		}
		i, j := r.IntN(len(p.held[a])), r.IntN(len(p.held[b]))
		if !p.swap(a, i, b, j) {
			continue
		}
		if next := p.cost(); next < cost {
			cost = next
		} else {
			p.swap(a, i, b, j)
		}
	}
}

// swap exchanges the i-th model of server a for the j-th of server b, and reports whether that is possible.
func (p *placement) swap(a, i, b, j int) bool {
	m, n := p.held[a][i], p.held[b][j]
	if slices.Contains(p.held[a], n) || slices.Contains(p.held[b], m) {
		return false
	}
	p.held[a][i], p.held[b][j] = n, m
	p.holders[m][slices.Index(p.holders[m], int32(a))] = int32(b)
	p.holders[n][slices.Index(p.holders[n], int32(b))] = int32(a)
	return true
}

// steepness is how much more a high load costs than a low one.
const steepness = 16

// cost is how uneven the loads are when each model's work is spread over its holders as well as it can be.
func (p *placement) cost() float64 {
	clear(p.load)
	spread := make([][]float64, len(p.holders))
	for m, servers := range p.holders {
		spread[m] = make([]float64, len(servers))
		for k, i := range servers {
			spread[m][k] = p.work[m] / float64(len(servers))
			p.load[i] += spread[m][k]
		}
	}
	const rounds = 12
	for range rounds {
		for m, servers := range p.holders {
			if len(servers) < 2 {
				continue
			}
			p.level(spread[m], servers)
		}
	}
	sum := 0.0
	for _, l := range p.load {
		sum += math.Pow(l, steepness)
	}
	return sum
}

// level moves a model's work among its holders until their loads are equal, as far as it has work there.
func (p *placement) level(spread []float64, servers []int32) {
	total, base := 0.0, 0.0
	for k, i := range servers {
		p.load[i] -= spread[k]
		total += spread[k]
		base += p.load[i]
	}
	level := (total + base) / float64(len(servers))
	over := 0.0
	for k, i := range servers {
		spread[k] = max(0, level-p.load[i])
		over += spread[k]
	}
	for k, i := range servers {
		spread[k] *= total / over
		p.load[i] += spread[k]
	}
}

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
	slots   int       // of a server, for models that stay
	pinned  int       // models below it stay in memory
	holders [][]int32 // by model
	held    [][]int32 // by server
	load    []float64 // scratch: by server
}

// enough is how busy one replica of a model may keep its server where not all models fit into memory.
const enough = 0.6

// newPlacement places models for good, the most popular ones first. If all fit, the hottest have as many replicas as there is
// room for, so that the load of one replica is as even as can be. If not, tail slots of each server are left to the models that
// come and go, and the others have no more replicas than they need.
func newPlacement(work []float64, servers, slots, tail int) *placement {
	p := &placement{
		work: work, slots: slots - tail, holders: make([][]int32, len(work)), held: make([][]int32, servers),
		load: make([]float64, servers),
	}
	replicas := p.replicas(servers*p.slots, tail > 0)
	order := make([]int, p.pinned)
	for m := range order {
		order[m] = m
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(work[b]/float64(replicas[b]), work[a]/float64(replicas[a]))
	})
	for _, m := range order {
		for range replicas[m] {
			p.put(m, work[m]/float64(replicas[m]))
		}
	}
	p.improve(rand.New(rand.NewPCG(uint64(servers), uint64(len(work)))))
	return p
}

// replicas decides how many models are pinned, and how often. short says that there is no room for all.
func (p *placement) replicas(room int, short bool) []int {
	n, servers := make([]int, len(p.work)), len(p.held)
	each := func(m int) float64 { return p.work[m] / float64(n[m]) }
	for ; p.pinned < len(p.work) && room > 0; room-- {
		n[p.pinned] = 1
		p.pinned++
		for last := p.pinned - 1; short && each(last) > enough && n[last] < servers && room > 1; room-- {
			n[last]++
		}
	}
	for ; room > 0; room-- {
		most := -1
		for m := range p.pinned {
			if n[m] < servers && (most < 0 || each(m) > each(most)) {
				most = m
			}
		}
		if most < 0 {
			break
		}
		n[most]++
	}
	return n
}

// put adds a replica to the server with the least load that has room and does not hold the model.
func (p *placement) put(m int, work float64) {
	best := -1
	for i := range p.held {
		if len(p.held[i]) >= p.slots || slices.Contains(p.held[i], int32(m)) {
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
	p.holders[m] = append(p.holders[m], int32(best))
	p.held[best] = append(p.held[best], int32(m))
}

// improveSteps is how many changes improve tries.
const improveSteps = 4000

// improve tries random exchanges of models between servers, and keeps those that make the loads more even. Only placements with
// more than one holder for some model, and of fleets that are not too large, are worth it.
func (p *placement) improve(r *rand.Rand) {
	if len(p.held) > 64 {
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

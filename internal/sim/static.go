package sim

import (
	"math"
	"slices"
	"time"
)

// static is the bound static-optimum.
type static struct {
	quiet
	f       *Fleet
	holders [][]int32 // by model
	pinned  int32     // models from here on come and go
	greedy  *greedy
}

// newStatic takes the best of all divisions of memory between models that stay and those that come and go, as trial runs of the
// same calls show.
func newStatic(f *Fleet) Policy {
	if len(f.names) <= f.Servers*f.Slots {
		return newPinned(f, 0)
	}
	best, least := 1, math.Inf(1)
	for tail := 1; tail <= f.Slots; tail++ {
		trial := f.kind
		trial.build = func(f *Fleet) Policy { return newPinned(f, tail) }
		r := newFleet(f.Scenario, trial, f.seed).run()
		slices.Sort(r.Latencies)
		if p99 := Quantile(r.Latencies, .99) + float64(r.Errors); p99 < least {
			best, least = tail, p99
		}
	}
	return newPinned(f, best)
}

// newPinned leaves tail slots of each server to models that come and go, which are placed as greedy does.
func newPinned(f *Fleet, tail int) Policy {
	p := newPlacement(f.work(), f.Servers, f.Slots, tail)
	for m, servers := range p.holders[:p.pinned] {
		for _, i := range servers {
			f.servers[i].place(int32(m), true)
		}
	}
	return &static{f: f, holders: p.holders, pinned: int32(p.pinned), greedy: &greedy{f: f}}
}

// work returns how many servers the calls for each model keep busy.
func (f *Fleet) work() []float64 {
	rate := f.Rho * float64(f.Servers*f.Workers) / f.Service.Seconds()
	work := make([]float64, len(f.catalog.share))
	for m, share := range f.catalog.share {
		work[m] = share * rate * f.catalog.mean[m].Seconds() / float64(f.Workers)
	}
	return work
}

// Place implements Policy.
func (s *static) Place(now time.Duration, c *Call) int {
	if c.Model >= s.pinned {
		return s.greedy.Place(now, c)
	}
	return s.f.soonest(s.holders[c.Model], c.Model)
}

package sim

import "time"

// static is the bound static-optimum.
type static struct {
	quiet
	f       *Fleet
	holders [][]int32 // by model
}

func newStatic(f *Fleet) Policy {
	p := newPlacement(f.work(), f.Servers, f.Slots)
	p.improve(source(f.seed, forPolicy, 1))
	s := &static{f: f, holders: p.holders}
	for m, servers := range p.holders {
		for _, i := range servers {
			if m < p.pinned {
				f.servers[i].place(int32(m), true)
			}
		}
	}
	return s
}

// work returns how many servers the calls for each model keep busy.
func (f *Fleet) work() []float64 {
	rate := f.Rho * float64(f.Servers) / f.Service.Seconds()
	work := make([]float64, len(f.catalog.share))
	for m, share := range f.catalog.share {
		work[m] = share * rate * f.catalog.mean[m].Seconds()
	}
	return work
}

// Place implements Policy.
func (s *static) Place(_ time.Duration, c *Call) int { return s.f.soonest(s.holders[c.Model], c.Model) }

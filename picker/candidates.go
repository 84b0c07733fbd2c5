package picker

import "math"

// candidates is room for the first that are looked at, and for one more.
type candidates [samples + 1]candidate

// soonest returns the candidate that is expected to answer first, of several the first. It takes no branch, which would be a
// coin that the processor has to guess: times are not negative, and ordered as their bits are.
func soonest(cs []candidate) *candidate {
	best, in := 0, int64(math.Float64bits(cs[0].in))
	for i := 1; i < len(cs); i++ {
		t := int64(math.Float64bits(cs[i].in))
		sooner := (t - in) >> 63 // -1 if it is, else 0
		best ^= (best ^ i) & int(sooner)
		in ^= (in ^ t) & sooner
	}
	return &cs[best]
}

// look is how far the holders of a model have been looked at.
type look struct {
	hs      []holder
	at      int // the next one
	left    int // how many are still to be looked at
	n       int // candidates that were found
	best    *candidate
	loading bool
}

// seen is what is kept of a candidate that was looked at.
type seen struct {
	in    float64
	at    int // among the holders
	ready bool
}

// warmOfAll goes on with the holders that are left, where none of the first will do.
func (s *affinity) warmOfAll(x *estimator, g *Guard, q *Query, room *candidates, l look) (best *candidate, loading bool) {
	var looked [manyHolders + 1]seen // the last one is of those for which there is no room
	for i := range room[:l.n] {
		looked[i] = seen{room[i].in, room[i].at, room[i].ready}
	}
	c := &room[samples]
	for ; l.left > 0; l.left-- {
		if l.n >= samples && l.best.ready && (l.best.in <= soon*x.service || len(l.hs) > manyHolders) {
			break
		}
		if s.consider(x, g, &l.hs[l.at], q, c) {
			l.loading = l.loading || !c.ready
			looked[l.n] = seen{c.in, l.at, c.ready}
			l.n = min(l.n+1, manyHolders)
			if c.in < l.best.in {
				l.best, c = c, l.best
			}
		}
		if l.at++; l.at == len(l.hs) {
			l.at = 0
		}
	}
	if l.best.ready && l.n >= samples && l.best.in > soon*x.service {
		if h := s.spread(looked[:l.n], l.best); h >= 0 && s.consider(x, g, &l.hs[h], q, c) {
			l.best = c
		}
	}
	return l.best, l.loading
}

package picker

import (
	"cmp"
	"slices"

	"github.com/cespare/xxhash/v2"
)

const (
	// sessionSet is how many of a model's holders a session chooses among. Where there are more, these follow the session's
	// hash in the circle of the holders' keys: a holder that comes or goes changes one of them, and takes or gives the
	// sessions for which it is the first of the set.
	sessionSet = 8
	// sessionMargin is how many service times later than on the best endpoint a call may be expected to be answered to stay
	// with its session. What a server has kept of a session is worth a part of a service time, up to most of one where the
	// prompt is long; a call that goes elsewhere loses it there, and the next one again on the way back, or for good what was
	// kept for others.
	sessionMargin = 1.25
)

// session turns the choice of best, a holder of the model or one that loads it, into that of the endpoint which the call's
// affinity key belongs to, if that one is expected to answer nearly as soon.
func (s *affinity) session(x *estimator, g *Guard, p *placement, q *Query, best *candidate) Choice {
	if q.AffinityKey != "" && best.ready {
		if c, ok := s.keeper(x, g, p, q); ok && c.in <= best.in+sessionMargin*x.service {
			return c.choice(x, Session, p, q)
		}
	}
	return best.choice(x, Warm, p, q)
}

// keeper returns the endpoint that a session belongs to: of the set, that of the highest hash with the session's (rendezvous
// hashing) which holds the model and may be sent the call. It depends on the identities of the holders alone, so that clients
// agree, and sessions stay when others come and go.
func (s *affinity) keeper(x *estimator, g *Guard, p *placement, q *Query) (best candidate, found bool) {
	hs := p.held()
	key := mix(xxhash.Sum64String(q.AffinityKey) ^ mix(q.Key)) // a session has something with each of its models
	at := 0
	if len(hs) > sessionSet {
		at, _ = position(hs, key)
	}
	var highest uint64
	var c candidate
	for range min(len(hs), sessionSet) {
		if at == len(hs) {
			at = 0
		}
		h := &hs[at]
		at++
		rank := mix(key ^ h.endpoint.key)
		if found && rank <= highest {
			continue
		}
		if s.consider(x, g, h, q, &c) && c.ready {
			best, found, highest = c, true, rank
		}
	}
	return best, found
}

// position returns where the first holder is whose endpoint's key is not less, and whether it is equal.
func position(hs []holder, key uint64) (int, bool) {
	return slices.BinarySearchFunc(hs, key, func(h holder, key uint64) int { return cmp.Compare(h.endpoint.key, key) })
}

// mix spreads a number over all bits (the finalizer of SplitMix64).
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

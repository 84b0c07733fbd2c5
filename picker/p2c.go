package picker

func init() { Register(func() Options { return &P2COptions{Choices: 2} }) }

// P2COptions configures the strategy "p2c", the power of two choices: of a few endpoints drawn at random, the least loaded one
// serves the call. Load is the cost in flight, the call's own included, per weight, times how much slower the endpoint's answers
// have been than those of the other, divided by the endpoint's health score, which here leaves latencies out. Calls that find
// equals are spread at random.
type P2COptions struct {
	// Choices is how many distinct endpoints are drawn, from 2 to 10; default 2. More draws find a less loaded endpoint, and
	// make many clients find the same one.
	Choices int `json:"choices,omitempty"`
}

// Strategy implements Options.
func (o *P2COptions) Strategy() string { return "p2c" }

// Validate implements Options.
func (o *P2COptions) Validate() error {
	if o.Choices < 2 || o.Choices > maxChoices {
		return BadField("choices", o.Choices, "2 to 10")
	}
	return nil
}

// Build implements Options.
func (o *P2COptions) Build(b Build) Strategy { return &p2c{choices: o.Choices, rand: b.Rand} }

const (
	maxChoices = 10
	// maxDraws is how many endpoints are drawn at most, those that the request avoids included.
	maxDraws = maxChoices + maxTried
)

// p2c is the strategy of P2COptions.
type p2c struct {
	choices int
	rand    func() uint64
}

// Pick implements Strategy.
func (s *p2c) Pick(t *Table, q *Query) Choice {
	var drawn [maxDraws]uint32 // positions in t.ready, ascending
	best, reason, found := uint32(0), Only, 0
	var random uint64
	for n := 0; n < min(len(t.ready), maxDraws) && found < s.choices; n++ {
		if n%2 == 0 {
			random = s.rand()
		} else {
			random <<= 32 // one random number is good for two draws
		}
		// Draw one of the positions that are left, by its number among them.
		at, k := below(random, len(t.ready)-n), 0
		for ; k < n && drawn[k] <= at; k++ {
			at++
		}
		for j := n; j > k; j-- {
			drawn[j] = drawn[j-1]
		}
		drawn[k] = at

		i := t.ready[at]
		if e := t.members[i].Endpoint; !t.admits(e, q) || !s.ramped(e, q.Now) {
			continue
		}
		found++
		if found == 1 {
			best = i
			continue
		}
		a, b := t.members[best], t.members[i]
		switch la, lb := compare(&a, &b, q); {
		case lb < la:
			best, reason = i, LessLoaded
		case la < lb:
			reason = LessLoaded
		default:
			// The order of draws is random already, so the first one may stay, unless the weights say otherwise.
			if a.Weight != b.Weight && unit(s.rand())*(a.Weight+b.Weight) < b.Weight {
				best = i
			}
			if reason == Only {
				reason = Tie
			}
		}
	}
	if found == 0 {
		return s.any(t, q)
	}
	return Choice{Index: int(best), Reason: reason}
}

// ramped reports whether an endpoint that was drawn may be chosen: one that is to get a part of its share is passed over in the other part of
// draws, whatever its load.
func (s *p2c) ramped(e *Endpoint, now int64) bool {
	r := e.ramp(now)
	return r >= 1 || unit(s.rand()) < r
}

// minWorth bounds how much a low score can make an endpoint's load count.
const minWorth = 0.05

// worth returns the endpoint's score as loads are divided by it. Latencies are compared apart from it: the score's part of them
// is slow to forget, and an endpoint that was slow would get no calls that could show that it no longer is.
func (e *Endpoint) worth() float64 { return max(minWorth, e.score.ValueBesideLatency()) }

// any chooses at random where fewer endpoints may be chosen than can be found by drawing.
func (s *p2c) any(t *Table, q *Query) Choice {
	n := len(t.ready)
	first := int(below(s.rand(), n))
	for k := range n {
		if i := t.ready[(first+k)%n]; t.admits(t.members[i].Endpoint, q) {
			return Choice{Index: int(i), Reason: Only}
		}
	}
	return t.refuse()
}

// latencyBand is how many times as slow as another an endpoint may look and still count as equally fast. Estimates of equal
// servers differ by as much; without a band, the one that looks fastest by a hair would get every call of an idle fleet. A band of
// 2 costs 5 to 10 % of the p99 of fleets in which some servers are 2 to 4 times as slow as the rest.
const latencyBand = 1.25

// compare returns the loads of two candidates, of which only the order matters. They are equal if both are idle and neither is
// slow.
func compare(a, b *Member, q *Query) (la, lb float64) {
	la, lb = 1, 1
	if ca, cb := a.loadAt(q.Now), b.loadAt(q.Now); ca|cb != 0 {
		own := int64(q.Cost())
		la, lb = float64(ca+own)/a.Weight, float64(cb+own)/b.Weight
	}
	la /= max(1, a.ramp(q.Now)) // less than 1 is for the draws
	lb /= max(1, b.ramp(q.Now))
	// A low score may be low for the same latency: the worse of the two counts.
	sa, sb := 1., 1.
	if wa, wb := a.worth(), b.worth(); wa > latencyBand*wb || wb > latencyBand*wa {
		sa, sb = 1/wa, 1/wb
	}
	switch ta, tb := a.Latency(), b.Latency(); {
	case ta == 0 || tb == 0: // one that has not answered yet is judged by its load alone
	case ta > latencyBand*tb:
		sa = max(sa, slowness(a.Endpoint, tb, q.Now))
	case tb > latencyBand*ta:
		sb = max(sb, slowness(b.Endpoint, ta, q.Now))
	}
	la *= sa
	lb *= sb
	return la, lb
}

// slowness returns how many times as slow as another, whose latency is given, an endpoint looks now; 1 within the band.
func slowness(e *Endpoint, other float64, now int64) float64 {
	if s := e.latencyToward(other, now) / other; s > latencyBand {
		return s
	}
	return 1
}

// below returns a number in [0, n) that is uniform if the upper half of r is.
func below(r uint64, n int) uint32 { return uint32((r >> 32) * uint64(n) >> 32) }

// unit returns a number in [0, 1), uniform if r is.
func unit(r uint64) float64 { return float64(r>>11) / (1 << 53) }

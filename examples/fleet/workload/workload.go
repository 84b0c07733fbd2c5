// Package workload generates a trace that looks like the requests to a public model arena: few popular models and a long
// tail, requests for a model in runs, answers of very different lengths.
//
// The figures are those of the 1,500 requests to chat.lmsys.org that were published with "Fairness in Serving Large Language
// Models" (OSDI 2024): models follow Zipf's law, 16.9 % of the requests ask for the same model as the one before, and
// interarrival times vary a little more than a Poisson process's.
package workload

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/mlbalancer/mlbalancer/examples/fleet/trace"
)

const (
	rows     = 1500
	span     = 600.0 // seconds
	models   = 27
	zipf     = 1.04  // exponent of the popularity over ranks
	sameNext = 0.169 // share of requests for the same model as the one before
	// burst is the shape of the Weibull distribution of interarrival times whose coefficient of variation is 1.10.
	burst = 0.9107
)

// Quantiles of the token lengths, between which lengths are interpolated on a log scale.
var (
	inputTokens = []quantile{{0, 2}, {.05, 2}, {.10, 5}, {.25, 13}, {.50, 40}, {.75, 161}, {.90, 432}, {.95, 656}, {.99, 929}, {1, 1021}}
	// Many answers end at a limit of 512 tokens, hence the flat part.
	outputTokens = []quantile{{0, 2}, {.05, 10}, {.10, 18}, {.25, 62}, {.50, 211}, {.75, 462}, {.88, 513}, {.95, 513}, {.99, 785}, {1, 977}}
)

// Generate returns 1,500 requests for 27 models over ten minutes. The same seed gives the same trace.
func Generate(seed uint64) *trace.Trace {
	rnd := rand.New(rand.NewPCG(seed, 0x776f726b6c6f6164))
	popularity := newPopularity()
	repeat := popularity.repeatFor(sameNext)

	t := &trace.Trace{Name: fmt.Sprintf("arena-like workload, seed %d", seed), Rows: make([]trace.Row, rows)}
	arrival, model := 0.0, 0
	for i := range t.Rows {
		if i == 0 || rnd.Float64() >= repeat {
			model = popularity.draw(rnd)
		}
		t.Rows[i] = trace.Row{
			Arrival:      arrival,
			Model:        fmt.Sprintf("model-%02d", model+1),
			InputTokens:  draw(inputTokens, rnd),
			OutputTokens: draw(outputTokens, rnd),
			Duration:     trace.Unknown,
		}
		arrival += math.Pow(rnd.ExpFloat64(), 1/burst)
	}
	stretch := span / t.Rows[rows-1].Arrival
	for i := range t.Rows {
		t.Rows[i].Arrival *= stretch
	}
	return t
}

// popularity holds the cumulative shares of the models by rank.
type popularity [models]float64

func newPopularity() *popularity {
	var p popularity
	sum := 0.0
	for r := range p {
		sum += math.Pow(float64(r+1), -zipf)
		p[r] = sum
	}
	for r := range p {
		p[r] /= sum
	}
	return &p
}

func (p *popularity) draw(rnd *rand.Rand) int {
	u := rnd.Float64()
	for r, upTo := range p {
		if u < upTo {
			return r
		}
	}
	return models - 1
}

// repeatFor returns the probability of simply repeating the last model that makes the given share of requests follow one for
// the same model: independent draws hit the same model sometimes by themselves.
func (p *popularity) repeatFor(share float64) float64 {
	independent, before := 0.0, 0.0
	for _, upTo := range p {
		independent += (upTo - before) * (upTo - before)
		before = upTo
	}
	return (share - independent) / (1 - independent)
}

// quantile says that a share of all values is at most value.
type quantile struct{ share, value float64 }

// draw returns a value of the distribution that the quantiles describe.
func draw(q []quantile, rnd *rand.Rand) int {
	u := rnd.Float64()
	i := 1
	for i < len(q)-1 && u > q[i].share {
		i++
	}
	lo, hi := q[i-1], q[i]
	at := (u - lo.share) / (hi.share - lo.share)
	return int(math.Round(lo.value * math.Pow(hi.value/lo.value, at)))
}

package fleet

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/cespare/xxhash/v2"
)

// modelSpread is the standard deviation of the logarithm of models' mean service times.
const modelSpread = 0.4

// draws are a server's random numbers. Each purpose has its own, so that a fault that is drawn for does not shift the
// times of later loads.
type draws struct {
	seed                 uint64
	service, load, fault *rand.Rand
}

func newDraws(seed uint64, server int) draws {
	source := func(purpose uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, uint64(server)<<8|purpose)) }
	return draws{seed: seed, service: source(1), load: source(2), fault: source(3)}
}

// modelMean returns a model's mean service time around that of all models: the same on every server.
func (d *draws) modelMean(mean time.Duration, model string) time.Duration {
	r := rand.New(rand.NewPCG(d.seed, xxhash.Sum64String(model)))
	return time.Duration(float64(mean) * math.Exp(modelSpread*r.NormFloat64()-modelSpread*modelSpread/2))
}

// lognormal draws a duration with a mean and a coefficient of variation. A cv of 0 or less gives the mean itself.
func lognormal(r *rand.Rand, mean time.Duration, cv float64) time.Duration {
	if cv <= 0 {
		return mean
	}
	variance := math.Log(1 + cv*cv) // of the logarithm
	return time.Duration(float64(mean) * math.Exp(math.Sqrt(variance)*r.NormFloat64()-variance/2))
}

package sim

import (
	"math"
	"math/rand/v2"
	"time"
)

const (
	// workCV is the coefficient of variation of the work of a model's calls.
	workCV = 0.8
	// modelSigma is by how much models differ: the standard deviation of the logarithm of their mean work.
	modelSigma = 0.4
	// loadCV is the coefficient of variation of load times.
	loadCV = 0.15
)

// What random numbers are drawn for. Each purpose has its own, so that none shifts those of another.
const (
	forModels uint64 = iota + 1
	forCalls
	forClients
	forLoads
	forReports
	forPolicy
	forNames
	forTraffic
)

// source returns random numbers for a purpose and, where there is one for each of several things, for the index-th of these.
func source(seed, purpose uint64, index int) *rand.Rand {
	return rand.New(rand.NewPCG(seed, purpose<<32|uint64(index)))
}

// lognormal draws a duration with a mean and a coefficient of variation.
func lognormal(r *rand.Rand, mean time.Duration, cv float64) time.Duration {
	variance := math.Log(1 + cv*cv) // of the logarithm
	return time.Duration(float64(mean) * math.Exp(math.Sqrt(variance)*r.NormFloat64()-variance/2))
}

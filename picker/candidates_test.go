package picker

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestTheSoonestCandidateIsTheFirstOfTheLeast(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	times := []float64{0, 1, 1.5, 1e9, 1e9 + 1, 1e300}
	for range 10_000 {
		cs := make([]candidate, 1+rng.IntN(samples))
		want := 0
		for i := range cs {
			cs[i].in = times[rng.IntN(len(times))]
			if cs[i].in < cs[want].in {
				want = i
			}
		}
		assert.Same(t, &cs[want], soonest(cs))
	}
}

package sim

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestPlacementsFitIntoMemory(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ models, servers, slots, tail, pinned int }{
		{64, 32, 4, 0, 64}, {100, 32, 4, 0, 100}, {3, 4, 4, 0, 3}, {60, 8, 5, 2, 24}, {60, 8, 5, 5, 0},
	} {
		work := zipf(c.models, 1)
		for m := range work {
			work[m] *= .5 * float64(c.servers)
		}
		p := newPlacement(work, c.servers, c.slots, c.tail)
		assert.LessOrEqual(t, p.pinned, c.pinned)
		if c.tail == 0 {
			assert.Equal(t, c.models, p.pinned)
		}
		for _, held := range p.held {
			assert.LessOrEqual(t, len(held), c.slots-c.tail)
		}
		for m, servers := range p.holders {
			assert.Equal(t, m < p.pinned, len(servers) > 0)
			sorted := slices.Clone(servers)
			slices.Sort(sorted)
			assert.Len(t, slices.Compact(sorted), len(servers), "no server holds a model twice")
			for _, i := range servers {
				assert.Contains(t, p.held[i], int32(m))
			}
		}
	}
}

func TestPlacementIsEven(t *testing.T) {
	t.Parallel()
	work := zipf(64, 1)
	for m := range work {
		work[m] *= .7 * 32
	}
	p := newPlacement(work, 32, 4, 0)
	p.cost()
	assert.Less(t, slices.Max(p.load), .75, "the mean is .7")
}

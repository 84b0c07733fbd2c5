package picker

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRoundRobinTurns(t *testing.T) {
	members, status := namedFleet(1, 0, 3, 1, 1)
	members[3] = Member{Weight: 1}
	status[4] = Down
	table := NewTable(nil, planOf(Defaults("round_robin")), members, status, rand.Uint64)
	first := table.Pick(queryFor("m"))
	require.Equal(t, Turn, first.Reason)
	require.Contains(t, []int{0, 2}, first.Index)
	for i := range 10 {
		want := first.Index
		if i%2 == 0 {
			want = 2 - first.Index
		}
		require.Equal(t, Choice{Index: want, Reason: Turn}, table.Pick(queryFor("m")))
	}
}

func TestRoundRobinAvoids(t *testing.T) {
	table := readyTable(Defaults("round_robin"), rand.Uint64, 3)
	q := queryFor("m")
	q.Avoid = []*Endpoint{table.Member(0).Endpoint, table.Member(2).Endpoint}
	for range 10 {
		require.Equal(t, 1, table.Pick(q).Index)
	}
}

// The count of turns may overflow.
func TestRoundRobinWraps(t *testing.T) {
	table := readyTable(Defaults("round_robin"), func() uint64 { return math.MaxUint64 - 2 }, 4)
	seen := map[int]int{}
	for range 8 {
		seen[table.Pick(queryFor("m")).Index]++
	}
	assert.Len(t, seen, 4)
}

// Clients that start at the same moment with the same list do not start on the same server.
func TestRoundRobinStartsAnywhere(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	first := make([]int, 20)
	for range 400 {
		first[readyTable(Defaults("round_robin"), rng.Uint64, 20).Pick(queryFor("m")).Index]++
	}
	for i, n := range first {
		assert.True(t, 3 <= n && n <= 45, "server %d was first for %d of 400 clients", i, n)
	}
}

package picker

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// line is a ring as one would draw it: all points on a line, and every question answered by walking along it.
type line []linePoint

type linePoint struct {
	hash uint64
	id   string
	node int
}

func drawLine(nodes []node) line {
	var l line
	for i, o := range nodes {
		for p := range o.count {
			l = append(l, linePoint{xxhash.Sum64String(fmt.Sprintf("%s_%d", o.id, p)), o.id, i})
		}
	}
	sort.SliceStable(l, func(i, j int) bool {
		return l[i].hash < l[j].hash || l[i].hash == l[j].hash && l[i].id < l[j].id
	})
	return l
}

// home returns the position of a key's point.
func (l line) home(key uint64) int {
	return max(0, slices.IndexFunc(l, func(p linePoint) bool { return p.hash >= key }))
}

// walk returns the distinct nodes along the line from a key.
func (l line) walk(key uint64) []int {
	start := l.home(key)
	var nodes []int
	for i := range l {
		if n := l[(start+i)%len(l)].node; !slices.Contains(nodes, n) {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// requireLine checks points against the line, and lookups at and around some of them.
func requireLine(t testing.TB, p *points) {
	l := drawLine(p.nodes)
	require.Equal(t, len(l), len(p.hashes))
	require.Equal(t, len(l), len(p.owners))
	for i := range l {
		if l[i].hash != p.hashes[i] || l[i].node != int(p.owners[i]) {
			require.Equal(t, l[i], linePoint{p.hashes[i], p.nodes[p.owners[i]].id, int(p.owners[i])}, "point %d", i)
		}
	}
	if len(l) == 0 {
		return
	}
	require.LessOrEqual(t, len(p.index), len(l))
	require.Greater(t, 2*len(p.index), len(l))
	keys := []uint64{0, 1, math.MaxUint64, math.MaxUint64 - 1, 1 << 63}
	for i := 0; i < len(l); i += 1 + len(l)/20 {
		keys = append(keys, l[i].hash-1, l[i].hash, l[i].hash+1)
	}
	for _, key := range keys {
		require.Equal(t, l.home(key), p.home(key), "key %x", key)
	}
}

// The hashes of points are part of the contract between clients: whoever hashes identity_i with xxhash64 gets these.
func TestPointHashes(t *testing.T) {
	for _, golden := range []struct {
		id     string
		hashes []uint64
	}{
		{"10.0.0.1:8001", []uint64{0x92a11ae0c9d8f2b8, 0xe582610361e95718, 0x52211bff2af1f746}},
		{"triton-0", []uint64{0x8cab1c159e7f4ee5, 0xc83bcac60f931781, 0xe49b3ea8f36dbc3b}},
		{"", []uint64{0x11edc0a85bae6d4d}},
	} {
		assert.Equal(t, golden.hashes, appendHashes(nil, golden.id, 0, len(golden.hashes)), "%q", golden.id)
	}
	long := strings.Repeat("x", 1000)
	assert.Equal(t, []uint64{xxhash.Sum64String(long + "_99"), xxhash.Sum64String(long + "_100")}, appendHashes(nil, long, 99, 101))
}

func TestPointsMatchLine(t *testing.T) {
	for _, nodes := range [][]node{
		nil,
		{{}},
		{{"a", 1}},
		{{"a", 1}, {"b", 1}, {}},
		{{"b", 3}, {}, {"a", 200}, {"c", 0}},
		nodesOf(40, 150),
	} {
		requireLine(t, newPoints(nodes))
	}
}

func nodesOf(n, count int) []node {
	nodes := make([]node, n)
	for i := range nodes {
		nodes[i] = node{fmt.Sprint("node-", i), count}
	}
	return nodes
}

// The order in which the nodes are given does not show: a key's owner is the same node.
func TestPointsIgnoreOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	nodes := nodesOf(30, 50)
	p := newPoints(nodes)
	for range 20 {
		shuffled := slices.Clone(nodes)
		rng.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		q := newPoints(shuffled)
		require.Equal(t, p.hashes, q.hashes)
		for i := range p.owners {
			require.Equal(t, nodes[p.owners[i]], shuffled[q.owners[i]])
		}
	}
}

// edited applies random changes to nodes: nodes that leave holes, come into holes or at the end, are replaced, change their weight,
// or their place.
func edited(rng *rand.Rand, nodes []node) []node {
	nodes = slices.Clone(nodes)
	for range 1 + rng.IntN(4) {
		i, j := rng.IntN(len(nodes)), rng.IntN(len(nodes))
		switch fresh := fmt.Sprint("fresh-", rng.IntN(1e6)); rng.IntN(8) {
		case 0:
			nodes[i] = node{}
		case 1:
			nodes = append(nodes, node{fresh, 1 + rng.IntN(30)})
		case 2, 3:
			nodes[i] = node{fresh, 1 + rng.IntN(30)}
		case 4, 5:
			if nodes[i].count > 0 {
				nodes[i].count = 1 + rng.IntN(40)
			}
		case 6:
			nodes[i], nodes[j] = nodes[j], nodes[i]
		case 7:
			nodes = nodes[:max(1, len(nodes)-1)]
		}
	}
	return nodes
}

func TestUpdateEqualsBuild(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	incremental := 0
	for range 8 {
		nodes := nodesOf(1+rng.IntN(150), 20)
		p := newPoints(nodes)
		for range 30 {
			nodes = edited(rng, nodes)
			if _, ok := p.edits(nodes); ok {
				incremental++
			}
			p = p.update(nodes)
			require.Equal(t, newPoints(nodes), p)
		}
		requireLine(t, p)
	}
	require.Greater(t, incremental, 80, "most updates are to be incremental, or this tests nothing")
}

// Points whose hashes are equal come in the order of identities, however they got there. No two real ones are, so these are made up.
func TestEqualHashes(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	type point struct {
		hash  uint64
		owner uint32
	}
	for range 2000 {
		nodes := make([]node, 6)
		for i, id := range rng.Perm(len(nodes)) {
			nodes[i].id = fmt.Sprint(id)
		}
		order := func(a, b point) int {
			return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(nodes[a.owner].id, nodes[b.owner].id))
		}
		build := func(all []point) *points {
			all = slices.Clone(all)
			slices.SortFunc(all, func(a, b point) int { return cmp.Compare(nodes[a.owner].id, nodes[b.owner].id) })
			var hashes []uint64
			var owners []uint32
			for _, x := range all {
				hashes, owners = append(hashes, x.hash), append(owners, x.owner)
			}
			p := allocPoints(nodes, len(all))
			p.sort(hashes, owners)
			return p
		}
		// Eight different hashes among the points of before, of which some go, and of those that come.
		draw := func(n int) (all []point) {
			for range n {
				all = append(all, point{rng.Uint64N(8) << 61, uint32(rng.IntN(len(nodes)))})
			}
			return all
		}
		before, come := draw(16+rng.IntN(8)), draw(4)
		after := slices.Concat(before[4:], come)
		var edits []edit
		for i := range come {
			gone := before[i]
			edits = append(edits, edit{gone.hash, gone.owner, nodes[gone.owner].id, false},
				edit{come[i].hash, come[i].owner, nodes[come[i].owner].id, true})
		}
		slices.SortFunc(edits, compareEdits)

		want := slices.Clone(after)
		slices.SortStableFunc(want, order)
		merged := allocPoints(nodes, len(after))
		merged.merge(build(before), edits)
		for i, x := range want {
			require.Equal(t, x, point{merged.hashes[i], merged.owners[i]})
		}
		require.Equal(t, build(after), merged)
	}
}

func TestShares(t *testing.T) {
	assert.Equal(t, []float64{0, 1}, newPoints([]node{{}, {"a", 1}}).shares())
	assert.Equal(t, []float64{0, 0}, newPoints([]node{{}, {}}).shares())

	nodes := []node{{"a", 100}, {}, {"b", 200}, {"c", 300}, {"d", 400}}
	p := newPoints(nodes)
	shares := p.shares()
	sum := 0.0
	for _, s := range shares {
		sum += s
	}
	assert.InDelta(t, 1, sum, 1e-9)

	const keys = 100_000
	owned := make([]float64, len(nodes))
	rng := rand.New(rand.NewPCG(4, 4))
	for range keys {
		owned[p.owners[p.home(rng.Uint64())]]++
	}
	for i := range nodes {
		assert.InDelta(t, owned[i]/keys, shares[i], 0.01, "node %d", i)
	}
}

// FuzzRing edits a membership at the input's will and holds the ring to the line at each step.
func FuzzRing(f *testing.F) {
	f.Add([]byte{5, 0, 1, 2, 3, 4})
	f.Add([]byte("\x80replace and replace again"))
	f.Add([]byte{200, 3, 3, 3, 0, 0, 0, 7, 7, 7, 255, 255, 64, 64})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 {
			return
		}
		// The first byte is the size of the fleet, then two bytes are an edit: what, and where.
		nodes := nodesOf(1+int(data[0]%128), 5)
		p := newPoints(nodes)
		for edits := data[1:min(len(data), 41)]; len(edits) >= 2; edits = edits[2:] {
			what, i := edits[0], int(edits[1])%len(nodes)
			nodes = slices.Clone(nodes)
			switch what % 4 {
			case 0:
				nodes[i] = node{}
			case 1:
				nodes[i] = node{fmt.Sprint("fresh-", len(edits)), int(what / 4)}
			case 2:
				nodes[i].count = int(what / 4)
				if nodes[i].id == "" {
					nodes[i].id = fmt.Sprint("fresh-", len(edits))
				}
			case 3:
				j := int(what/4) % len(nodes)
				nodes[i], nodes[j] = nodes[j], nodes[i]
			}
			p = p.update(nodes)
		}
		requireLine(t, p)
		require.Equal(t, newPoints(nodes), p)
	})
}

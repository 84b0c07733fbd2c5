package picker

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// node is what a member contributes to a ring: its identity and its number of points.
type node struct {
	id    string
	count int
}

// points are the points of a ring, sorted by hash. Point i of a node has the hash xxhash64(identity + "_" + i), the format of
// Envoy and gRFC A42. Points of equal hash are ordered by identity, so that the order of the nodes does not show in the ring;
// identities are unique.
// Points are immutable: another set of nodes makes other points.
type points struct {
	nodes  []node
	owned  int      // number of nodes that have points
	hashes []uint64 // ascending
	owners []uint32 // owners[i] is the index of the node that point i belongs to
	// index finds the neighbourhood of a hash by its top bits, 64-shift of them: index[b] is the position of the first point
	// whose top bits are b or more. There are one to two points per entry.
	index []uint32
	shift uint
}

// allocPoints returns space for n points, at least 1, of nodes.
func allocPoints(nodes []node, n int) *points {
	top := bits.Len(uint(n)) - 1
	p := &points{
		nodes:  nodes,
		hashes: make([]uint64, n),
		owners: make([]uint32, n),
		index:  make([]uint32, 1<<top),
		shift:  uint(64 - top),
	}
	for _, o := range nodes {
		if o.count > 0 {
			p.owned++
		}
	}
	return p
}

// newPoints computes all points of nodes.
func newPoints(nodes []node) *points {
	n := countPoints(nodes)
	if n == 0 {
		return &points{nodes: nodes}
	}
	byID := make([]uint32, len(nodes))
	for i := range byID {
		byID[i] = uint32(i)
	}
	slices.SortStableFunc(byID, func(a, b uint32) int { return strings.Compare(nodes[a].id, nodes[b].id) })
	hashes, owners := make([]uint64, 0, n), make([]uint32, 0, n)
	for _, o := range byID {
		hashes = appendHashes(hashes, nodes[o].id, 0, nodes[o].count)
		for range nodes[o].count {
			owners = append(owners, o)
		}
	}
	p := allocPoints(nodes, n)
	p.sort(hashes, owners)
	return p
}

// sort fills p with points, stably sorted by hash. Hashes are uniform, so that after a counting sort by their top bits, whose
// counts become the index, next to nothing is left to sort.
func (p *points) sort(hashes []uint64, owners []uint32) {
	for _, h := range hashes {
		p.index[h>>p.shift]++
	}
	end := uint32(0)
	for b := range p.index {
		end += p.index[b]
		p.index[b] = end
	}
	for i := len(hashes) - 1; i >= 0; i-- { // each end moves down to its entry's begin
		b := hashes[i] >> p.shift
		p.index[b]--
		at := p.index[b]
		p.hashes[at], p.owners[at] = hashes[i], owners[i]
	}
	for i := 1; i < len(p.hashes); i++ {
		h, o := p.hashes[i], p.owners[i]
		j := i
		for ; j > 0 && p.hashes[j-1] > h; j-- {
			p.hashes[j], p.owners[j] = p.hashes[j-1], p.owners[j-1]
		}
		p.hashes[j], p.owners[j] = h, o
	}
}

func countPoints(nodes []node) int {
	n := 0
	for _, o := range nodes {
		n += o.count
	}
	return n
}

// appendHashes appends the hashes of a node's points from one number up to another, that one excluded.
func appendHashes(hashes []uint64, id string, from, to int) []uint64 {
	var space [128]byte
	name := append(append(space[:0], id...), '_')
	for i := from; i < to; i++ {
		hashes = append(hashes, xxhash.Sum64(strconv.AppendInt(name, int64(i), 10)))
	}
	return hashes
}

// search returns the position of the first point whose hash is key or more; the number of points if there is none.
func (p *points) search(key uint64) int {
	i := int(p.index[key>>p.shift])
	for i < len(p.hashes) && p.hashes[i] < key {
		i++
	}
	return i
}

// home returns the position of the point that a key belongs to: the first at or after it, where the last is followed by the
// first. There must be points.
func (p *points) home(key uint64) int {
	i := p.search(key)
	if i == len(p.hashes) {
		return 0
	}
	return i
}

// shares returns the part of all keys that each node owns; they add up to 1 if there are points.
func (p *points) shares() []float64 {
	shares := make([]float64, len(p.nodes))
	last := len(p.hashes) - 1
	for i, h := range p.hashes {
		arc := float64(math.MaxUint64) - float64(p.hashes[last]-h) // the first point's arc starts at the last
		if i > 0 {
			arc = float64(h - p.hashes[i-1])
		}
		shares[p.owners[i]] += arc / math.MaxUint64
	}
	return shares
}

// edit is one point that comes or goes.
type edit struct {
	hash  uint64
	owner uint32
	id    string
	add   bool
}

// update returns the points of other nodes, the same as newPoints would, from those in which the nodes differ.
func (p *points) update(nodes []node) *points {
	n := countPoints(nodes)
	if n == 0 || bits.Len(uint(n)) != bits.Len(uint(len(p.hashes))) { // the index changes its size
		return newPoints(nodes)
	}
	edits, ok := p.edits(nodes)
	if !ok {
		return newPoints(nodes)
	}
	u := allocPoints(nodes, n)
	u.merge(p, edits)
	return u
}

// merge fills u with p's points as edited: it copies what lies between the edits.
func (u *points) merge(p *points, edits []edit) {
	from, to, bucket := 0, 0, 0 // how far p is read, u written, and its index written
	for i := range edits {
		e := &edits[i]
		at := max(from, p.position(e))
		copy(u.hashes[to:], p.hashes[from:at])
		copy(u.owners[to:], p.owners[from:at])
		to += at - from
		from = at
		// Points up to this one have moved by as many places as were added less removed before it.
		for end := int(e.hash>>p.shift) + 1; bucket < end; bucket++ {
			u.index[bucket] = p.index[bucket] + uint32(to-from)
		}
		if e.add {
			u.hashes[to], u.owners[to] = e.hash, e.owner
			to++
		} else {
			from++
		}
	}
	copy(u.hashes[to:], p.hashes[from:])
	copy(u.owners[to:], p.owners[from:])
	to += len(p.hashes) - from
	for ; bucket < len(u.index); bucket++ {
		u.index[bucket] = p.index[bucket] + uint32(to-len(p.hashes))
	}
}

// maxEdits is the part of all points that may change before computing and sorting all of them is cheaper.
const maxEdits = 0.1

// edits returns what the points of nodes add to p's and remove from them, in the order of the ring. It returns false if that is
// so much that starting anew is cheaper. A node whose index has changed goes and comes.
func (p *points) edits(nodes []node) ([]edit, bool) {
	var edits []edit
	var hashes []uint64
	limit := int(maxEdits * float64(len(p.hashes)))
	change := func(id string, owner, from, to int, add bool) bool {
		if len(edits)+to-from > limit {
			return false
		}
		hashes = appendHashes(hashes[:0], id, from, to)
		for _, h := range hashes {
			edits = append(edits, edit{h, uint32(owner), id, add})
		}
		return true
	}
	for i := range max(len(nodes), len(p.nodes)) {
		var was, is node
		if i < len(p.nodes) {
			was = p.nodes[i]
		}
		if i < len(nodes) {
			is = nodes[i]
		}
		kept := 0
		if was.id == is.id {
			kept = min(was.count, is.count)
		}
		if !change(was.id, i, kept, was.count, false) || !change(is.id, i, kept, is.count, true) {
			return nil, false
		}
	}
	slices.SortFunc(edits, compareEdits)
	return edits, true
}

func compareEdits(a, b edit) int {
	return cmp.Or(cmp.Compare(a.hash, b.hash), strings.Compare(a.id, b.id), cmp.Compare(a.owner, b.owner))
}

// position returns where in p the edit's point is, or belongs.
func (p *points) position(e *edit) int {
	i := p.search(e.hash)
	for i < len(p.hashes) && p.hashes[i] == e.hash {
		o := p.owners[i]
		if cmp.Or(strings.Compare(p.nodes[o].id, e.id), cmp.Compare(o, e.owner)) >= 0 {
			break
		}
		i++
	}
	return i
}

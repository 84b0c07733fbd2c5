package picker

// directory finds models' placements by their keys. It is an open hash table that is at most half full: keys are hashes already,
// and a map would hash them again for each pick. It does not change once picks read it.
type directory struct {
	n     int
	slots []listing // a power of two of them
}

// listing is a slot; its placement is nil if it is free.
type listing struct {
	key uint64
	at  *placement
}

// minListings is how many slots the smallest directory has.
const minListings = 16

// get returns the placement of a model, or nil if it is not listed. A directory that is nil lists nothing.
func (d *directory) get(key uint64) *placement {
	if d == nil {
		return nil
	}
	mask := uint64(len(d.slots) - 1)
	for i := key & mask; ; i = (i + 1) & mask {
		if l := &d.slots[i]; l.key == key || l.at == nil {
			return l.at
		}
	}
}

// copy returns a directory of those placements that are wanted, with room for another.
func (d *directory) copy(wanted func(*placement) bool) *directory {
	c := &directory{slots: make([]listing, minListings)}
	if d == nil {
		return c
	}
	size := minListings
	for size < 2*(d.n+1) {
		size *= 2
	}
	c.slots = make([]listing, size)
	for _, l := range d.slots {
		if l.at != nil && wanted(l.at) {
			c.put(l.key, l.at)
		}
	}
	return c
}

// put lists a placement that is not listed yet. It makes room if there is none.
func (d *directory) put(key uint64, p *placement) {
	if 2*(d.n+1) > len(d.slots) {
		*d = *d.copy(func(*placement) bool { return true })
	}
	mask := uint64(len(d.slots) - 1)
	i := key & mask
	for d.slots[i].at != nil {
		i = (i + 1) & mask
	}
	d.slots[i] = listing{key, p}
	d.n++
}

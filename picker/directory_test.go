package picker

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestDirectory(t *testing.T) {
	var none *directory
	assert.Nil(t, none.get(0))
	d := none.copy(nil)
	assert.Nil(t, d.get(0))

	// Keys that follow one another, are far apart, 0, and many that begin in the same slot.
	keys := []uint64{0, 1, 2, 1 << 63, 3<<40 + 1}
	for i := range uint64(300) {
		keys = append(keys, 1<<20+i, (i+2)<<32)
	}
	want := map[uint64]*placement{}
	for i, key := range keys {
		p := &placement{}
		d.put(key, p)
		want[key] = p
		assert.Equal(t, i+1, d.n)
	}
	find := func(d *directory) {
		for key, p := range want {
			assert.Same(t, p, d.get(key), "%#x", key)
		}
		for _, key := range []uint64{3, 1<<20 - 1, 1<<20 + 300, 302 << 32} {
			assert.Nil(t, d.get(key), "%#x", key)
		}
	}
	find(d)

	gone := want[2]
	delete(want, 2)
	c := d.copy(func(p *placement) bool { return p != gone })
	assert.Equal(t, len(keys)-1, c.n)
	find(c)
	assert.Nil(t, c.get(2))
	assert.Same(t, gone, d.get(2), "the original is what it was")
	assert.LessOrEqual(t, len(c.slots), 4*(c.n+1))
}

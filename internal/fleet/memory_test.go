package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestColdRequestWaitsForItsLoadAndOthersGoOn(t *testing.T) {
	g := newRig(1, 2)
	g.place("warm")
	cold := g.submit("cold", time.Second)
	second := g.submit("cold", time.Second)
	warm := g.submit("warm", time.Second)
	assert.Equal(t, 2, g.waits)
	g.advance(time.Second)
	assert.True(t, isDone(warm))
	g.settle()
	assert.Equal(t, loadTime+time.Second, cold.ends)
	assert.Equal(t, loadTime+2*time.Second, second.ends)
	assert.True(t, cold.cold && second.cold)
	assert.False(t, warm.cold)
	assert.Equal(t, counters{hits: 1, coldCalls: 2, coldLoads: 1, loads: 1, busy: 3 * time.Second}, *g.count)
	assert.Equal(t, []string{"0s warm loaded", "0s cold loading", "5s cold loaded"}, g.log)
}

func TestThoseWhoWaitedForALoadJoinTheEndOfTheQueue(t *testing.T) {
	g := newRig(1, 2)
	g.place("warm")
	cold := g.submit("cold", time.Second)
	g.advance(loadTime - time.Second)
	a := g.submit("warm", 2*time.Second)
	b := g.submit("warm", 2*time.Second)
	g.settle()
	assert.Equal(t, loadTime+time.Second, a.ends)
	assert.Equal(t, loadTime+3*time.Second, b.ends)
	assert.Equal(t, loadTime+4*time.Second, cold.ends)
}

func TestLoadsAreSerial(t *testing.T) {
	g := newRig(4, 4)
	for _, m := range []string{"a", "b", "c"} {
		g.submit(m, time.Second)
	}
	g.settle()
	assert.Equal(t, []string{
		"0s a loading", "5s a loaded", "5s b loading", "10s b loaded", "10s c loading", "15s c loaded",
	}, g.log)
}

func TestEvictsTheLeastRecentlyUsed(t *testing.T) {
	g := newRig(4, 3)
	for _, m := range []string{"a", "b", "c"} {
		g.place(m)
	}
	g.submit("a", 0)
	g.submit("c", 0)
	assert.Equal(t, []string{"b", "a", "c"}, g.resident())
	g.submit("d", 0)
	g.settle()
	assert.Equal(t, []string{"a", "c", "d"}, g.resident())
	g.submit("e", 0)
	g.settle()
	assert.Equal(t, []string{"c", "d", "e"}, g.resident())
	assert.EqualValues(t, 2, g.count.evictions)

	g.submit("c", time.Second)
	g.submit("d", 0)
	g.settle()
	assert.Equal(t, []string{"e", "d", "c"}, g.resident(), "a model is used for as long as it works")
}

func TestEvictsIdleModelsOnly(t *testing.T) {
	g := newRig(4, 2)
	g.place("old")
	g.place("idle")
	long := g.submit("old", time.Minute)
	g.submit("idle", 0)
	g.submit("idle", 0) // used later than old, yet it is the one that goes
	g.submit("new", 0)
	g.advance(loadTime)
	assert.Equal(t, []string{"old", "new"}, g.resident())
	assert.False(t, isDone(long))
}

func TestDrainsTheLeastRecentlyUsedIfNoneIsIdle(t *testing.T) {
	g := newRig(1, 2)
	g.place("a")
	g.place("b")
	a1 := g.submit("a", 2*time.Second)
	b1 := g.submit("b", time.Second)
	a2 := g.submit("a", time.Second) // a was used last: b is drained
	c := g.submit("c", time.Second)
	b2 := g.submit("b", time.Second) // too late for this residency of b
	assert.Equal(t, []string{"a"}, g.resident())
	assert.Equal(t, 2, g.occupied, "b is still there")

	g.settle()
	assert.Equal(t, 2*time.Second, a1.ends)
	assert.Equal(t, 3*time.Second, b1.ends, "what the drained model had accepted is finished")
	assert.Equal(t, 4*time.Second, a2.ends)
	assert.Equal(t, 9*time.Second, c.ends)
	assert.True(t, b2.cold)
	assert.Equal(t, 14*time.Second, b2.ends)
	assert.Equal(t, []string{
		"0s a loaded", "0s b loaded",
		"3s b evicted", "3s c loading", "8s c loaded",
		"8s a evicted", "8s b loading", "13s b loaded",
	}, g.log)
}

func TestExplicit(t *testing.T) {
	explicit := func(slots int) *rig {
		g := newRig(1, slots)
		g.explicit = true
		return g
	}
	t.Run("unknown, loading, resident, unloaded", func(t *testing.T) {
		g := explicit(1)
		assert.Equal(t, errUnknown, g.submit("m", 0).err)
		load := g.load("m")
		assert.Equal(t, errNoVersions, g.submit("m", 0).err)
		assert.False(t, g.settled())
		g.settle()
		assert.True(t, isDone(load))
		assert.NoError(t, g.submit("m", 0).err)
		assert.True(t, g.settled())
		assert.True(t, g.unload("m"))
		assert.False(t, g.unload("m"), "again")
		assert.Equal(t, errNoVersions, g.submit("m", 0).err)
		assert.Equal(t, counters{hits: 1, loads: 1, evictions: 1}, *g.count)
	})
	t.Run("nothing is evicted for a load", func(t *testing.T) {
		g := explicit(1)
		g.place("a")
		b := g.load("b")
		assert.True(t, isDone(b))
		assert.Equal(t, errNoMemory, b.err)
		assert.False(t, g.settled(), "until the model that failed is unloaded")
		g.unload("b")
		assert.True(t, g.settled())
		assert.Equal(t, []string{"a"}, g.resident())
	})
	t.Run("a load waits for an unload under way", func(t *testing.T) {
		g := explicit(1)
		g.place("a")
		g.submit("a", time.Second)
		g.unload("a")
		assert.Equal(t, errNoVersions, g.submit("a", 0).err)
		b := g.load("b")
		a := g.load("a") // comes after b, and finds no memory
		g.settle()
		assert.NoError(t, b.err)
		assert.Equal(t, time.Second+loadTime, b.ends)
		assert.Equal(t, errNoMemory, a.err)
	})
	t.Run("a load goes on when who asked has left", func(t *testing.T) {
		g := explicit(2)
		g.load("a")
		assert.True(t, g.cancel(g.load("b")))
		g.settle()
		assert.Equal(t, []string{"a", "b"}, g.resident())
	})
	t.Run("unload while loading", func(t *testing.T) {
		g := explicit(1)
		load := g.load("m")
		assert.True(t, g.unload("m"))
		g.settle()
		assert.NoError(t, load.err)
		assert.Empty(t, g.resident())
		assert.Zero(t, g.occupied)
	})
	t.Run("load, unload, load", func(t *testing.T) {
		g := explicit(1)
		g.load("m")
		g.unload("m")
		g.load("m")
		g.settle()
		assert.Equal(t, []string{"m"}, g.resident())
	})
}

func TestOnDemandLoadByName(t *testing.T) {
	g := newRig(1, 1)
	g.place("a")
	b := g.load("b")
	g.settle()
	assert.True(t, isDone(b))
	assert.True(t, isDone(g.load("b")), "it is there")
	assert.Equal(t, []string{"b"}, g.resident())
	assert.Equal(t, counters{loads: 1, evictions: 1}, *g.count, "not a cold load")
}

func TestUnloadOfALoadThatNeverBegan(t *testing.T) {
	g := newRig(1, 2)
	g.submit("a", 0)
	b := g.submit("b", 0)
	g.unload("b")
	g.cancel(b)
	g.submit("b", 0)
	g.settle()
	assert.Equal(t, []string{"a", "b"}, g.resident(), "a later load is not meant")
}

func TestPlaceTakesFreeSlotsOnly(t *testing.T) {
	g := newRig(1, 2)
	assert.True(t, g.place("a"))
	assert.True(t, g.place("a"), "it is there")
	g.submit("b", 0) // loading
	assert.False(t, g.place("b"))
	assert.False(t, g.place("c"))
	assert.Equal(t, []string{"a"}, g.resident())
}

func TestStopEndsEverything(t *testing.T) {
	g := newRig(1, 3)
	for _, m := range []string{"done", "a", "b"} {
		g.place(m)
	}
	finished := g.submit("done", 0)
	last := g.submit("a", time.Second)
	g.unload("a")
	g.submit("c", 0) // waits for the last request of a
	g.stop()
	_, ok := g.next()
	assert.False(t, ok)
	assert.True(t, g.cancel(last))
	assert.False(t, g.cancel(finished))
	g.advance(time.Minute)
	assert.Zero(t, g.count.loads)
	assert.Equal(t, []string{"0s b evicted", "0s done evicted", "0s a evicted"}, g.log[3:])
}

package breaker

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestModelFaultNeedsTwoModels(t *testing.T) {
	w := newWorld(t, 1, nil)
	b := w.members[0]
	for range 100 {
		assert.False(t, b.ModelFault(1, w.now))
	}
	assert.True(t, b.ModelFault(2, w.now))
	assert.True(t, b.ModelFault(1, w.now))
	assert.True(t, b.ModelFault(3, w.now), "more than two")
	assert.True(t, b.ModelFault(4, w.now))
}

func TestModelFaultEndsWithSuccess(t *testing.T) {
	w := newWorld(t, 1, nil)
	b := w.members[0]
	b.ModelFault(1, w.now)
	b.ModelFault(2, w.now)
	b.ModelOK(3)
	b.ModelOK(1)
	assert.False(t, b.ModelFault(2, w.now))
	b.ModelOK(2)
	assert.False(t, b.ModelFault(1, w.now))
}

func TestModelFaultIsForgotten(t *testing.T) {
	w := newWorld(t, 1, func(c *Config) { c.Window = Duration(10 * time.Second) })
	b := w.members[0]
	b.ModelFault(1, w.now)
	w.wait(10*time.Second - unit)
	assert.True(t, b.ModelFault(2, w.now))
	w.wait(2 * unit)
	assert.False(t, b.ModelFault(2, w.now))
	assert.True(t, b.ModelFault(1, w.now))
	w.wait(time.Hour)
	b.ModelFault(3, w.now) // in place of the older one
	assert.False(t, b.ModelFault(3, w.now))

	alone := New("e")
	alone.ModelFault(1, 0)
	assert.True(t, alone.ModelFault(2, int64(defaultWindow-unit)))
	assert.False(t, alone.ModelFault(2, int64(defaultWindow+unit)))
}

func TestModelFaultTellsKeysApart(t *testing.T) {
	for _, keys := range [][2]uint64{{0, 2}, {1 << 63, 1 << 62}, {7, 7 << 32 << 1}} {
		b := New("e")
		assert.False(t, b.ModelFault(keys[0], 0))
		assert.False(t, b.ModelFault(keys[0], 0))
		assert.True(t, b.ModelFault(keys[1], 0))
		b.ModelOK(keys[0])
		assert.False(t, b.ModelFault(keys[1], 0))
	}
}

func TestModelFaultNotedTwiceIsOneModel(t *testing.T) {
	b := New("e")
	b.ModelFault(1, 0)
	b.faults[1].Store(b.faults[0].Load()) // as two goroutines may do at once
	assert.False(t, b.ModelFault(1, 0))
	b.ModelOK(1)
	assert.False(t, b.ModelFault(2, 0))
}

// One model alone never looks like two, whoever notes it at once.
func TestModelFaultConcurrent(t *testing.T) {
	b := New("e")
	var calling sync.WaitGroup
	for id := range 4 {
		calling.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(id), 5))
			for i := range 10_000 {
				if rng.IntN(3) == 0 {
					b.ModelOK(42)
				}
				if !assert.False(t, b.ModelFault(42, int64(i)*int64(time.Millisecond))) {
					return
				}
			}
		})
	}
	calling.Wait()
}

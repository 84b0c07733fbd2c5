package picker

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func observe(e *Endpoint, name string, now int64, latency time.Duration) {
	e.ObserveModel(Key(name), name, now, latency, DefaultTokens)
}

func TestModelService(t *testing.T) {
	e := NewEndpoint("a")
	assert.Zero(t, e.Service(Key("m")))
	for range e.Models() {
		assert.Fail(t, "nothing is known yet")
	}
	observe(e, "m", 1, 100*ms)
	assert.Equal(t, 100*ms, e.Service(Key("m")), "the first counts in full")
	observe(e, "m", 2, 200*ms)
	assert.Equal(t, 115*ms, e.Service(Key("m")))
	assert.Zero(t, e.Service(Key("n")))
	for m := range e.Models() {
		assert.Equal(t, "m", m.Name())
		assert.Equal(t, 115*ms, m.Service())
	}
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		observe(e, "m", 3, 100*ms)
		e.Service(Key("m"))
	}))
}

func modelsOf(e *Endpoint) map[string]int {
	names := map[string]int{}
	for m := range e.Models() {
		names[m.Name()]++
	}
	return names
}

// As many models as a server holds are all remembered.
func TestModelsGrow(t *testing.T) {
	e := NewEndpoint("a")
	for i := range 64 {
		observe(e, fmt.Sprint("model-", i), int64(i), time.Duration(1+i))
	}
	assert.Len(t, modelsOf(e), 64)
	for i := range 64 {
		assert.Equal(t, time.Duration(1+i), e.Service(Key(fmt.Sprint("model-", i))))
	}
}

// Any number of models takes bounded memory, and those in use stay.
func TestModelsAreBounded(t *testing.T) {
	e := NewEndpoint("a")
	now := int64(0)
	for i := range 20_000 {
		now += int64(10 * time.Microsecond)
		observe(e, fmt.Sprint("passing-", i), now, time.Second)
		now += int64(10 * time.Microsecond)
		observe(e, fmt.Sprint("used-", i%10), now, ms)
	}
	models := modelsOf(e)
	assert.LessOrEqual(t, len(models), maxModels)
	assert.Greater(t, len(models), maxModels/2)
	for i := range 10 {
		name := fmt.Sprint("used-", i)
		assert.Equal(t, 1, models[name], name)
		assert.Equal(t, ms, e.Service(Key(name)), name)
	}
	seen := 0
	for range e.Models() {
		if seen++; seen == 3 {
			break
		}
	}
	assert.Equal(t, 3, seen, "a range may end early")
}

func TestModelsConcurrently(t *testing.T) {
	e := NewEndpoint("a")
	var group sync.WaitGroup
	for g := range 4 {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 1))
			for i := range 3000 {
				observe(e, fmt.Sprint("model-", rng.IntN(400)), int64(i), time.Duration(1+rng.IntN(1000)))
				s := e.Service(Key(fmt.Sprint("model-", rng.IntN(400))))
				if !assert.True(t, 0 <= s && s <= 1000, "%v", s) {
					return
				}
				if i%100 == 0 {
					modelsOf(e)
				}
			}
		})
	}
	group.Wait()
	assert.LessOrEqual(t, len(modelsOf(e)), maxModels)
	for m := range e.Models() {
		assert.Positive(t, m.Service(), m.Name())
	}
}

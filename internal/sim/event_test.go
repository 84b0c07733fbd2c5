package sim

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestEventsComeInOrderOfTimeAndThenOfTheirAddition(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	var a agenda
	for i := range 2000 {
		a.add(event{at: time.Duration(r.IntN(50)), index: int32(i)})
		if r.IntN(3) == 0 {
			at, ok := a.next()
			assert.True(t, ok)
			assert.Equal(t, at, a.pop().at)
		}
	}
	last := a.pop()
	for len(a.heap) > 0 {
		e := a.pop()
		assert.True(t, last.before(&e))
		last = e
	}
	_, ok := a.next()
	assert.False(t, ok)
}

func TestDeadlinesOfCallsThatHaveEndedArePassedOver(t *testing.T) {
	t.Parallel()
	var q fifo
	calls := make([]Call, 5000)
	for i := range calls {
		calls[i] = Call{id: uint64(i + 1), Deadline: time.Duration(i)}
		q.push(&calls[i])
		if i%10 != 0 {
			calls[i].id = 0
		}
		if i%10 == 5 {
			at, ok := q.next()
			assert.True(t, ok)
			assert.Equal(t, time.Duration(i-5), at)
			assert.Same(t, &calls[i-5], q.pop())
		}
	}
	_, ok := q.next()
	assert.False(t, ok)
	assert.Less(t, len(q.entries), 4000, "what has passed is let go of")
}

package breaker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// hangs makes calls of models that hang, and asks whose matter they are.
func hangs(t *testing.T, answer bool, models ...uint64) (w *world, asked []Hang) {
	w = newWorld(t, 2, nil)
	b := w.members[0]
	b.OnHang(func(h Hang) bool {
		asked = append(asked, h)
		return answer
	})
	for _, m := range models {
		_, ok := b.AllowModel(w.now, 100*time.Millisecond, m)
		require.True(t, ok)
		w.wait(unit)
	}
	w.pass(200 * time.Millisecond)
	return w, asked
}

func TestHangOfOneModelIsForItToJudge(t *testing.T) {
	t.Parallel()
	w, asked := hangs(t, true, 7, 7, 7, 7, 7)
	b := w.members[0]
	assert.Equal(t, Closed, b.State(), "it is the model's matter")
	assert.Equal(t, 5, b.Stuck())
	require.NotEmpty(t, asked)
	h := asked[len(asked)-1]
	assert.True(t, h.Of(7))
	assert.False(t, h.Of(8))
	assert.True(t, h.Many)
	assert.Equal(t, 5, h.Calls)
	assert.InDelta(t, w.now-int64(200*time.Millisecond)-5*unit, h.Since, 2*unit)
	assert.InDelta(t, 100*time.Millisecond, h.Slow, 1<<slowUnit)

	w, asked = hangs(t, false, 7, 7, 7, 7, 7)
	assert.NotEmpty(t, asked)
	assert.Equal(t, Open, w.members[0].State(), "it is not")
	assert.Zero(t, w.members[0].Stuck())
	assert.Equal(t, Rule(Hung), w.lastReason().Rule)
}

func TestHangOfSeveralModelsIsTheEndpoints(t *testing.T) {
	t.Parallel()
	for _, models := range [][]uint64{{7, 7, 7, 7, 8}, {7, 7, 0, 7, 7}, {0, 0, 0, 0, 0}} {
		w, asked := hangs(t, true, models...)
		assert.Empty(t, asked, models)
		assert.Equal(t, Open, w.members[0].State(), models)
		assert.Zero(t, w.members[0].Stuck(), models)
	}
}

func TestHangIsOverWhenTheCallsAre(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2, nil)
	b := w.members[0]
	b.OnHang(func(Hang) bool { return true })
	var permits []Permit
	for range 3 {
		p, _ := b.AllowModel(w.now, 100*time.Millisecond, 7)
		permits = append(permits, p)
	}
	w.pass(200 * time.Millisecond)
	for i, p := range permits {
		assert.Equal(t, 3-i, b.Stuck())
		b.Done(p, w.now, Neutral)
	}
	assert.Zero(t, b.Stuck())
	_, _ = b.AllowModel(w.now, 100*time.Millisecond, 8)
	w.pass(200 * time.Millisecond)
	assert.Equal(t, 1, b.Stuck(), "another model hangs now")
}

func TestPairOpensForAHang(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2, nil)
	p := NewPair(w.members[0], "m")
	p.Hang(Hang{Since: w.now - int64(time.Second), Calls: 6, Many: true, Now: w.now})
	assert.Equal(t, Open, p.State())
	assert.Equal(t, Reason{Rule: Hung, Count: 6, Within: time.Second}, w.lastReason())
	p.Hang(Hang{Since: w.now - int64(time.Second), Calls: 6, Many: true, Now: w.now})
	w.drain()
	assert.Len(t, w.events, 1, "it is open already")
}

func TestAllowModelDoesNotAllocate(t *testing.T) {
	w := newWorld(t, 1, nil)
	b := w.members[0]
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		p, _ := b.AllowModel(w.now, time.Second, 7)
		b.Done(p, w.now, Success)
	}))
}

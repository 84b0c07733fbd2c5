package retry

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

const sec = int64(time.Second)

// spend withdraws as often as it is allowed to, at most max times, and returns how often that was.
func spend(b *Budget, now int64, max int) (n int) {
	for n < max && b.TryWithdraw(now) {
		n++
	}
	return n
}

func deposit(b *Budget, now int64, n int) {
	for range n {
		b.Deposit(now)
	}
}

func TestBudgetRatio(t *testing.T) {
	b := NewBudget(.2, 0)
	assert.Zero(t, spend(b, 5*sec, 10), "no calls, no retries")
	deposit(b, 5*sec, 4)
	assert.Zero(t, spend(b, 5*sec, 10), "less than one")
	deposit(b, 5*sec, 96)
	assert.Equal(t, 20, spend(b, 5*sec, 100))
	deposit(b, 6*sec, 50)
	assert.Equal(t, 10, spend(b, 6*sec, 100), "what was spent stays spent")
}

func TestBudgetFloor(t *testing.T) {
	b := NewBudget(.2, 3)
	assert.Equal(t, 30, spend(b, 7*sec, 100), "before any call")
	deposit(b, 7*sec, 150)
	assert.Zero(t, spend(b, 7*sec, 100), "20 % of the calls is as much: the floor comes not on top")
	deposit(b, 7*sec, 100)
	assert.Equal(t, 20, spend(b, 7*sec, 100))
}

func TestBudgetForgets(t *testing.T) {
	b := NewBudget(.5, 0)
	deposit(b, 0, 100)
	assert.Equal(t, 50, spend(b, 9*sec, 100), "ten seconds, the present one included")
	deposit(b, 9*sec, 40)
	assert.Equal(t, 0, spend(b, 10*sec, 100), "the calls are forgotten before what was spent on them")
	deposit(b, 18*sec, 20)
	assert.Equal(t, 0, spend(b, 18*sec, 100))
	assert.Equal(t, 10, spend(b, 19*sec, 100))
	assert.Zero(t, spend(b, 1000*sec, 100))
}

func TestBudgetRefund(t *testing.T) {
	b := NewBudget(0, .1)
	assert.Equal(t, 1, spend(b, 0, 2))
	b.Refund(0)
	assert.Equal(t, 1, spend(b, 0, 2))
	b.Refund(3 * sec)
	assert.Zero(t, spend(b, 3*sec, 2), "too late")
	b.Refund(10 * sec)
	b.Refund(10 * sec)
	assert.Equal(t, 1, spend(b, 10*sec, 2), "more than was withdrawn is not given back")
}

func TestBudgetOfNothing(t *testing.T) {
	b := NewBudget(0, 0)
	deposit(b, 0, 1000)
	assert.Zero(t, spend(b, 0, 10))
}

func TestBudgetRejects(t *testing.T) {
	for _, v := range []float64{-.1, 1.1, math.NaN(), math.Inf(1)} {
		assert.PanicsWithValue(t, "retry: NewBudget: ratio is "+fmt.Sprint(v)+", want 0 to 1", func() { NewBudget(v, 0) })
	}
	for _, v := range []float64{-1, 2e6, math.NaN(), math.Inf(1)} {
		assert.PanicsWithValue(t, "retry: NewBudget: minPerSecond is "+fmt.Sprint(v)+", want 0 to 1e6", func() { NewBudget(0, v) })
	}
}

// A plain model: every call and attempt with its second.
func TestBudgetModel(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		ratio, perSecond := float64(rnd.IntN(5))/4, float64(rnd.IntN(4))/2
		b := NewBudget(ratio, perSecond)
		var calls, spent []int64
		within := func(seconds []int64, now int64) (n int) {
			for _, s := range seconds {
				if s > now/sec-window {
					n++
				}
			}
			return n
		}
		now := rnd.Int64N(1 << 50)
		for range 500 {
			switch rnd.IntN(8) {
			case 0:
				now += rnd.Int64N(3 * sec)
			case 1:
				now += rnd.Int64N(15*sec) * rnd.Int64N(2)
			case 2, 3, 4:
				b.Deposit(now)
				calls = append(calls, now/sec)
			default:
				allowed := math.Max(ratio*float64(within(calls, now)), perSecond*window)
				want := float64(within(spent, now)+1) <= allowed
				if !assert.Equal(t, want, b.TryWithdraw(now), "at %d of %v, %v", now, ratio, perSecond) {
					return
				}
				if want {
					spent = append(spent, now/sec)
				}
			}
		}
	}
}

// However many ask at once, no more is given than there is, and no less.
func TestBudgetIsExactUnderContention(t *testing.T) {
	b := NewBudget(.1, 0)
	var given atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { deposit(b, 0, 1000) })
	}
	wg.Wait()
	for range 4 {
		wg.Go(func() {
			given.Add(int64(spend(b, 0, 50)))
			deposit(b, 0, 250)
			given.Add(int64(spend(b, 0, 1000)))
		})
	}
	wg.Wait()
	given.Add(int64(spend(b, 0, 1000)))
	assert.EqualValues(t, 500, given.Load())
}

func TestBudgetCountsNoFurtherThanFits(t *testing.T) {
	b := NewBudget(1, 1e6)
	b.seconds[0].Store(uint64(oneCall*maxCount + oneSpent*(maxCount-1)))
	b.Deposit(0)
	assert.True(t, b.TryWithdraw(0))
	assert.False(t, b.TryWithdraw(0))
	s := second(b.seconds[0].Load())
	assert.EqualValues(t, maxCount, s.calls())
	assert.EqualValues(t, maxCount, s.spent())
	assert.Zero(t, s.epoch())
}

func TestBudgetDoesNotAllocate(t *testing.T) {
	b := NewBudget(.2, 10)
	now := int64(0)
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		now += sec / 10
		b.Deposit(now)
		b.TryWithdraw(now)
		b.Refund(now)
	}))
}

func BenchmarkBudget(b *testing.B) {
	budget := NewBudget(.2, 10)
	b.Run("deposit", func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				budget.Deposit(int64(b.N))
			}
		})
	})
	b.Run("withdraw", func(b *testing.B) {
		for b.Loop() {
			budget.TryWithdraw(int64(b.N))
		}
	})
}

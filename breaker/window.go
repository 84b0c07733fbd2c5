package breaker

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// counts are how calls were judged: totals since the breaker was made, or their differences over a time.
type counts struct {
	ok     uint64 // in time
	slow   uint64 // late, or late already and still in flight
	failed uint64
	both   uint64 // failed after they had been counted as slow
}

func (c counts) calls() int { return int(c.ok + c.slow + c.failed - min(c.both, c.slow, c.failed)) }

// bad returns the share of the calls that were slow or failed.
func (c counts) bad() float64 { return 1 - ratio(int(c.ok), c.calls()) }

const (
	minSteps = 8
	maxSteps = 2 * minSteps
)

// steps is how a window is cut: into n steps of 2^shift ns.
type steps struct {
	shift uint
	n     int64
}

// stepsOf cuts a window into 9 to 16 steps. Their length is a power of two, so that finding a time's step takes no division.
func stepsOf(window time.Duration) steps {
	shift := uint(bits.Len64(uint64(window-1)/minSteps)) - 1
	return steps{shift, (int64(window) + 1<<shift - 1) >> shift}
}

// window remembers what the totals were when each of the last steps began. Only what is out of the ordinary is counted here;
// calls that succeed in time are counted in the stripes, and whoever needs the window passes their total in.
type window struct {
	slow, failed, both atomic.Uint64
	late               atomic.Uint64 // calls that succeeded, but not in time; they end a row of failures

	shift   atomic.Uint32 // of the steps
	current atomic.Int64  // the step that marks are filled up to
	marks   [maxSteps]mark
}

type mark struct{ ok, slow, failed, both atomic.Uint64 }

func (m *mark) set(c counts) {
	m.ok.Store(c.ok)
	m.slow.Store(c.slow)
	m.failed.Store(c.failed)
	m.both.Store(c.both)
}

func (w *window) totals(ok uint64) counts {
	return counts{ok: ok, slow: w.slow.Load(), failed: w.failed.Load(), both: w.both.Load()}
}

// roll fills the marks up to the step of now. Each failure and each tick does so; what else was counted since is taken for as
// old.
func (w *window) roll(s steps, now int64, ok uint64) {
	step, current := now>>s.shift, w.current.Load()
	if step <= current { // below it if the clock was read before another goroutine rolled on
		return
	}
	totals := w.totals(ok)
	for i := max(current, step-maxSteps) + 1; i <= step; i++ {
		w.marks[i&(maxSteps-1)].set(totals)
	}
	w.current.CompareAndSwap(current, step)
}

// check makes the window forget what it has seen if its steps have another length than those it went by.
func (w *window) check(s steps, now int64, ok uint64) {
	if w.shift.Load() == uint32(s.shift) && w.current.Load() <= now>>s.shift+1 {
		return
	}
	w.shift.Store(uint32(s.shift))
	w.forget(ok)
	w.current.Store(now >> s.shift)
}

// forget makes the window forget what it has seen.
func (w *window) forget(ok uint64) {
	totals := w.totals(ok)
	for i := range w.marks {
		w.marks[i].set(totals)
	}
}

// fail counts a failure in the step of now. late says that it was counted as slow before.
func (w *window) fail(s steps, now int64, ok uint64, late bool) {
	w.roll(s, now, ok)
	if late {
		w.both.Add(1)
	}
	w.failed.Add(1)
}

// counts returns the counts of the last n steps, of which the present one is under way, or since the window forgot if that is later.
func (w *window) counts(s steps, ok uint64) counts {
	m := &w.marks[(w.current.Load()-s.n+1)&(maxSteps-1)]
	return counts{
		ok:     since(ok, &m.ok),
		slow:   since(w.slow.Load(), &m.slow),
		failed: since(w.failed.Load(), &m.failed),
		both:   since(w.both.Load(), &m.both),
	}
}

// since returns by how much a total is above what it was. A vote that was taken back may leave it below.
func since(total uint64, was *atomic.Uint64) uint64 { return total - min(was.Load(), total) }

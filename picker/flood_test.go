package picker

import (
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mlbalancer/mlbalancer/health"
)

// Memory must not grow with the number of models that callers or servers name (vllm-project/production-stack#687; case OVLD-02). The case has two million
// names in a minute and allows 64 MB. Here are 40,000 for each strategy: the first half, which is more than any table holds, fills what there is to
// fill, and the other half, which has as many names again, may add next to nothing. What is bounded so is bounded for any number.
func TestMemoryIsBoundedWhateverModelsAreNamed(t *testing.T) {
	const half, models, most, more = 20_000, 400, 16 << 20, 1 << 20
	for _, reports := range []bool{false, true} {
		for _, strategy := range []string{"ring", "p2c", "affinity"} {
			t.Run(fmt.Sprintf("%s, reports %v", strategy, reports), func(t *testing.T) {
				before := heapInUse()
				table, g := guarded(strategy, 2)
				f := flood{t: t, table: table, guard: g, now: int64(time.Hour), models: models, reports: reports}
				f.names(0, half)
				full := heapInUse()
				assert.LessOrEqual(t, full-before, int64(most))
				f.names(half, 2*half)
				again := heapInUse()
				t.Logf("%d KiB, %d KiB", (full-before)>>10, (again-before)>>10)
				assert.LessOrEqual(t, again-full, int64(more), "what as many names again add")
				f.names(0, 1000)
				assert.Equal(t, reports, g.residency.informed.Load())
				for _, m := range table.members {
					assert.Zero(t, m.InFlight())
				}
				runtime.KeepAlive(table)
			})
		}
	}
}

// heapInUse returns how many bytes are in use.
func heapInUse() int64 {
	runtime.GC()
	runtime.GC() // what finalizers and pools have held
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

// flood places one call for each of many models, and has servers report as many.
type flood struct {
	t       *testing.T
	table   *Table
	guard   *Guard
	now     int64
	models  int // in a report
	reports bool
}

// names places a call for each model of a range of numbers. Every tenth is not there, and every hundredth fails.
func (f *flood) names(from, to int) {
	var a Attempt
	for i := from; i < to; i++ {
		f.now += int64(30 * time.Microsecond)
		if f.reports && i%f.models == 0 {
			f.report(i)
		}
		name := strconv.Itoa(i)
		q := Query{Request: Request{ModelID: name}, Key: Key(name), Now: f.now}
		require.GreaterOrEqual(f.t, f.table.Place(&q, 0, &a).Index, 0)
		o := Success
		switch {
		case i%100 == 0:
			o = ModelFault
		case i%10 == 0:
			o = Misplaced
		}
		a.End(f.now, o, 0, true)
	}
}

// report has each server say that it holds models from a number on, those that are called next, and no other any more.
func (f *flood) report(first int) {
	for i := range f.table.members {
		r := health.Report{Server: health.ServerReady, Complete: true, OnDemand: health.Yes}
		for m := range f.models {
			r.Models = append(r.Models, health.Model{Name: strconv.Itoa(first + m), State: health.ModelReady})
		}
		f.guard.Report(f.table.members[i].Endpoint, 0, f.now, &r)
	}
	f.guard.Watch(f.table, f.now)
}

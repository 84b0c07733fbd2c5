package picker

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mlbalancer/mlbalancer/breaker"
	"github.com/mlbalancer/mlbalancer/health"
)

// informedFleet is a table of the affinity strategy whose servers say once a second what they hold and how busy they are, with a quarter of a second's
// delay, and calls that come one after the other.
type informedFleet struct {
	table   *Table
	guard   *Guard
	reports []health.Report // by endpoint
	queries []Query
	attempt Attempt
	now     int64
	next    int
	due     int64 // when the next reports are
}

// Each of a number of models is on copies of n endpoints.
func newInformedFleet(n, models, copies int) *informedFleet {
	members, status := fleet(n)
	f := &informedFleet{guard: NewGuard(breaker.DefaultConfig(), rand.Uint64), now: int64(time.Hour)}
	breakers := make([]*breaker.Breaker, n)
	for i, m := range members {
		breakers[i] = m.Breaker()
	}
	f.guard.Group.Set(f.now, breakers)
	f.guard.SetPanicThreshold(.5)
	f.reports = make([]health.Report, n)
	for i := range f.reports {
		f.reports[i] = steadyReport(0)
		f.reports[i].Age = 250 * time.Millisecond
		f.reports[i].Load.Active = i % 4
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range models {
		name := fmt.Sprintf("registry/llm-%07d-fp16", i)
		f.queries = append(f.queries, Query{Request: Request{ModelID: name}, Key: Key(name)})
		for _, at := range rng.Perm(n)[:copies] {
			f.reports[at].Models = append(f.reports[at].Models,
				health.Model{Name: name, State: health.ModelReady, Service: 100 * time.Millisecond})
		}
	}
	f.table = NewTable(nil, Plan{Inference: Defaults("affinity"), Update: Defaults("p2c"), Guard: f.guard}, members, status, rand.Uint64)
	f.report()
	f.guard.Watch(f.table, f.now)
	return f
}

// report has all servers report.
func (f *informedFleet) report() {
	f.due = f.now + int64(time.Second)
	for i := range f.reports {
		f.guard.Report(f.table.Member(i).Endpoint, 0, f.now, &f.reports[i])
	}
}

// call places and ends one call. Calls follow one another as fast as they would if that were all.
func (f *informedFleet) call() Reason {
	q := &f.queries[f.next]
	if f.next++; f.next == len(f.queries) {
		f.next = 0
	}
	f.now += 150
	q.Now = f.now
	c := f.table.Place(q, f.now+int64(time.Minute), &f.attempt)
	f.now += 150
	f.attempt.End(f.now, Success, 0, true)
	return c.Reason
}

// BenchmarkAffinity measures Place and End where servers say what they hold: few of them a model, or all of them.
func BenchmarkAffinity(b *testing.B) {
	for _, copies := range []string{"3", "all"} {
		for _, n := range []int{10, 100, 1000} {
			b.Run(fmt.Sprintf("copies=%s/n=%d", copies, n), func(b *testing.B) {
				f := newInformedFleet(n, 1024, 3)
				if copies == "all" {
					f = newInformedFleet(n, 20, n)
				}
				for range 4 * len(f.queries) {
					f.call()
				}
				b.ReportAllocs()
				warm, all := 0, 0
				for b.Loop() {
					if f.now > f.due {
						b.StopTimer()
						f.report()
						b.StartTimer()
					}
					if f.call() == Warm {
						warm++
					}
					all++
				}
				if warm < all*9/10 {
					b.Fatalf("%d of %d calls went to endpoints that hold their model, want most", warm, all)
				}
			})
		}
	}
}

func TestACallThatServersAreInformedOfAllocatesNothing(t *testing.T) {
	for _, copies := range []int{3, 100} {
		f := newInformedFleet(100, 20, copies)
		for range 4 * len(f.queries) {
			f.call() // endpoints get to know their models
		}
		warm := 0
		assert.Zero(t, testing.AllocsPerRun(1000, func() {
			if f.call() == Warm {
				warm++
			}
		}))
		assert.Greater(t, warm, 900, "with %d copies", copies)
	}
}

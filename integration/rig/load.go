package rig

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Result is what became of one call.
type Result struct {
	Index   int // of the call in its run, from 0
	Sent    time.Time
	Took    time.Duration
	Backend string // that answered
	Err     error
}

// Results is what became of some calls, in no order.
type Results []Result

// Send sends one call as Call does, with a time limit, and returns what became of it.
func (c *Client) Send(model string, limit time.Duration, opts ...grpc.CallOption) Result {
	return Timed(limit, func(ctx context.Context) (string, error) { return c.Call(ctx, model, opts...) })
}

// SendMethod sends one call of a method, with a time limit, and returns what became of it.
func (c *Client) SendMethod(method string, limit time.Duration, opts ...grpc.CallOption) Result {
	return Timed(limit, func(ctx context.Context) (string, error) { return c.Method(ctx, method, opts...) })
}

// Timed makes one call with a time limit, and returns what became of it.
func Timed(limit time.Duration, call func(ctx context.Context) (backend string, err error)) Result {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	r := Result{Sent: time.Now()}
	r.Backend, r.Err = call(ctx)
	r.Took = time.Since(r.Sent)
	return r
}

// Open starts rate calls a second, however long they take, until ctx is done; it returns when all have ended. If this process is
// kept from running, the calls that are overdue start at once.
func Open(ctx context.Context, rate float64, call func(i int) Result) Results {
	t := time.NewTicker(time.Millisecond)
	defer t.Stop()
	results := collector{}
	start := time.Now()
	for n := 0; ; {
		select {
		case <-ctx.Done():
			return results.wait()
		case <-t.C:
		}
		for due := int(time.Since(start).Seconds() * rate); n < due && ctx.Err() == nil; n++ {
			results.add(n, call)
		}
	}
}

// collector runs calls and keeps what became of them.
type collector struct {
	running sync.WaitGroup
	mu      sync.Mutex
	results Results
}

func (c *collector) add(i int, call func(i int) Result) {
	c.running.Go(func() {
		r := call(i)
		r.Index = i
		c.mu.Lock()
		defer c.mu.Unlock()
		c.results = append(c.results, r)
	})
}

func (c *collector) wait() Results {
	c.running.Wait()
	return c.results
}

// Closed sends n calls by a number of workers, each one after the other. The result at index i is that of call i.
func Closed(workers, n int, call func(i int) Result) Results {
	results := make(Results, n)
	var next atomic.Int64
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				results[i] = call(i)
				results[i].Index = i
			}
		})
	}
	running.Wait()
	return results
}

// Until has a number of workers send calls, each one after the other, until ctx is done.
func Until(ctx context.Context, workers int, call func(i int) Result) Results {
	results := collector{}
	var next atomic.Int64
	for range workers {
		results.running.Go(func() {
			var mine Results
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				r := call(i)
				r.Index = i
				mine = append(mine, r)
			}
			results.mu.Lock()
			defer results.mu.Unlock()
			results.results = append(results.results, mine...)
		})
	}
	return results.wait()
}

// Between returns the calls that were sent from one time on and before another.
func (rs Results) Between(from, to time.Time) Results {
	return slices.DeleteFunc(slices.Clone(rs), func(r Result) bool { return r.Sent.Before(from) || !r.Sent.Before(to) })
}

// By returns how many calls each server answered.
func (rs Results) By() map[string]int {
	by := map[string]int{}
	for _, r := range rs {
		if r.Err == nil {
			by[r.Backend]++
		}
	}
	return by
}

// Share returns the part of all answered calls that a server answered.
func (rs Results) Share(backend string) float64 {
	by, all := rs.By(), 0
	for _, n := range by {
		all += n
	}
	if all == 0 {
		return 0
	}
	return float64(by[backend]) / float64(all)
}

// Failed returns the calls that failed.
func (rs Results) Failed() Results {
	return slices.DeleteFunc(slices.Clone(rs), func(r Result) bool { return r.Err == nil })
}

// Codes returns how many calls ended with each status.
func (rs Results) Codes() map[codes.Code]int {
	by := map[codes.Code]int{}
	for _, r := range rs {
		by[status.Code(r.Err)]++
	}
	return by
}

// Slowest returns how long the slowest call took.
func (rs Results) Slowest() time.Duration {
	var d time.Duration
	for _, r := range rs {
		d = max(d, r.Took)
	}
	return d
}

// String lists the errors, the first few of them.
func (rs Results) String() string {
	failed := rs.Failed()
	s := fmt.Sprintf("%d calls, %d failed", len(rs), len(failed))
	for i, r := range failed {
		if i == 5 {
			return s + "; ..."
		}
		s += fmt.Sprintf("; after %v: %v", r.Took, r.Err)
	}
	return s
}

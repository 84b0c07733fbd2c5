package rig

import (
	"context"
	"sync"
	"time"
)

// Visits notes the calls that a handler gets. It is safe for concurrent use.
type Visits struct {
	mu            sync.Mutex
	at            []time.Time
	running, most int
}

// Around returns a handler that notes the calls of another, which may be nil.
func (v *Visits) Around(h Handler) Handler {
	return func(ctx context.Context, method string) error {
		v.mu.Lock()
		v.at = append(v.at, time.Now())
		v.running++
		v.most = max(v.most, v.running)
		v.mu.Unlock()
		defer func() {
			v.mu.Lock()
			defer v.mu.Unlock()
			v.running--
		}()
		if h == nil {
			return nil
		}
		return h(ctx, method)
	}
}

// Times returns when the calls came, in order.
func (v *Visits) Times() []time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.at[:len(v.at):len(v.at)]
}

// Len returns how many calls came.
func (v *Visits) Len() int { return len(v.Times()) }

// Most returns how many calls were under way at once, at most.
func (v *Visits) Most() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.most
}

// Between returns how many calls came from one time on and before another.
func (v *Visits) Between(from, to time.Time) (n int) {
	for _, at := range v.Times() {
		if !at.Before(from) && at.Before(to) {
			n++
		}
	}
	return n
}

// Densest returns how many calls came from one time on within any span of a length, at most.
func (v *Visits) Densest(from time.Time, length time.Duration) (most int) {
	at := v.Times()
	for i, first := range at {
		if first.Before(from) {
			continue
		}
		n := 0
		for _, t := range at[i:] {
			if t.Sub(first) < length {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// Gap returns the longest time without a call between two times.
func (v *Visits) Gap(from, to time.Time) (gap time.Duration) {
	last := from
	for _, at := range v.Times() {
		if at.After(from) && at.Before(to) {
			gap, last = max(gap, at.Sub(last)), at
		}
	}
	return max(gap, to.Sub(last))
}

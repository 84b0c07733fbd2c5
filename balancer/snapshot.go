package balancer

import (
	"context"
	"slices"
	"sync"
	"time"

	gbalancer "google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer/health"
	"github.com/mlbalancer/mlbalancer/health/orca"
	"github.com/mlbalancer/mlbalancer/internal/outcome"
	"github.com/mlbalancer/mlbalancer/picker"
)

// snapshot is the gRPC picker: an immutable view of the policy that every pick reads. It needs no lock of its own, since gRPC
// swaps pickers atomically.
type snapshot struct {
	table    *picker.Table
	conns    []gbalancer.SubConn // by the table's index; nil where not connected
	reader   *requestReader
	outcomes *outcome.Table
	loads    bool  // the loads that servers report with their responses count
	refusal  error // what a call gets when nothing is ready
	policy   *policy
}

// equal reports whether two snapshots pick alike.
func (s *snapshot) equal(o *snapshot) bool {
	return o != nil && s.table == o.table && s.reader == o.reader && s.outcomes == o.outcomes && s.loads == o.loads && s.refusal == o.refusal && slices.Equal(s.conns, o.conns)
}

// Pick implements gbalancer.Picker.
func (s *snapshot) Pick(info gbalancer.PickInfo) (gbalancer.PickResult, error) {
	call, own, key := picker.Find(info.Ctx)
	if call != nil && call.Inspect != nil {
		call.Inspect(s.policy)
		return gbalancer.PickResult{}, errInspected
	}
	a := newAttempt()
	a.read(call, own, key, &info, s)
	choice := s.table.Place(&a.query, deadlineOf(info.Ctx), &a.Attempt)
	if choice.Index < 0 {
		a.release()
		if choice.Reason == picker.Pinned {
			return gbalancer.PickResult{}, s.refusePinned(call.Pin)
		}
		return gbalancer.PickResult{}, s.refuse(choice.Reason)
	}
	if call != nil {
		call.Placed(a.Endpoint(), choice.Reason)
		if call.Responses != nil {
			a.Report(call.Responses, judge{s.outcomes})
		}
	}
	return gbalancer.PickResult{SubConn: s.conns[choice.Index], Done: a.done}, nil
}

// refuse returns what a call gets that was placed nowhere.
func (s *snapshot) refuse(r picker.Reason) error {
	switch r {
	case picker.Wait:
		return gbalancer.ErrNoSubConnAvailable
	case picker.Tried:
		return errTried
	case picker.Refused:
		s.wake()
		return s.policy.guarded
	}
	return s.refusal
}

// wake has the calls that were refused look for a place again before long.
func (s *snapshot) wake() {
	if !s.policy.refused.Load() {
		s.policy.refused.Store(true)
	}
}

// deadlineOf returns when the call's time is over, on the clock of monotonic; 0 if it has all the time.
func deadlineOf(ctx context.Context) int64 {
	if d, ok := ctx.Deadline(); ok {
		return max(int64(d.Sub(start)), 1)
	}
	return 0
}

var errInspected = status.Error(codes.Unavailable, Name+": read-out, not a call")

// attempt is one attempt of one call from Pick to Done.
type attempt struct {
	picker.Attempt
	query    picker.Query
	ctx      context.Context
	call     *picker.Call // nil without the interceptor
	outcomes *outcome.Table
	loads    bool                     // the loads that servers report with their responses count
	done     func(gbalancer.DoneInfo) // a.end, bound once in the attempt's life
}

var attempts sync.Pool // of *attempt

func newAttempt() *attempt {
	a, _ := attempts.Get().(*attempt)
	if a == nil {
		a = &attempt{}
		a.done = a.end
	}
	return a
}

// read fills the query with the call's request, where own is what the caller put into ctx. A call with a record is read once, at its
// first pick. One without may be a stream, for all that is known.
func (a *attempt) read(call *picker.Call, own *picker.Request, key uint64, info *gbalancer.PickInfo, s *snapshot) {
	a.ctx, a.call, a.outcomes, a.loads = info.Ctx, call, s.outcomes, s.loads
	q := &a.query
	q.Now = monotonic()
	if call == nil {
		s.reader.read(q, own, key, info, nil)
		q.Stream = true
		return
	}
	if known, itsKey := call.Resolved(); known != nil {
		q.Request, q.Key = *known, itsKey
	} else {
		s.reader.read(q, own, key, info, call.Message)
		call.Resolve(&q.Request, q.Key)
	}
	q.Avoid, q.Fresh, q.Stream, q.Pin = call.Tried(), call.Fresh, call.Stream, call.Pin
}

// end is the attempt's Done. gRPC calls it once, possibly after the policy was closed. If nothing was sent the call never happened, whatever
// the error: there was no connection any more, or the caller's own credentials failed.
func (a *attempt) end(info gbalancer.DoneInfo) {
	now := monotonic()
	o, pushback := picker.Unsent, time.Duration(0)
	switch sent := info.BytesSent || info.BytesReceived; {
	case sent && info.Err == nil:
		o = picker.Success
	case sent:
		o = a.outcomes.Classify(a.ctx, outcome.End{Err: info.Err, Took: a.Took(now), Slow: a.Slow(), Received: info.BytesReceived})
	}
	if info.ServerLoad != nil && a.loads {
		a.noteLoad(now, info.ServerLoad)
	}
	if info.Err != nil {
		pushback = outcome.Pushback(info.Trailer, info.Err)
	}
	a.End(now, o, pushback, a.call == nil || !a.call.Stream)
	if a.call != nil {
		if o == picker.Unsent {
			a.call.Unplaced()
		} else {
			a.call.Ended(o, pushback)
		}
	}
	a.release()
}

// noteLoad lets the load count that a server reported with its response.
func (a *attempt) noteLoad(now int64, report any) {
	var l health.Load
	if orca.Load(report, &l) {
		a.Endpoint().Note(now, &l)
	}
}

func (a *attempt) release() {
	a.query.Clear()
	a.ctx, a.call, a.outcomes = nil, nil, nil
	a.Attempt.Clear()
	attempts.Put(a)
}

// judge is the policy as streams need it. It is one pointer, so that it becomes a picker.Judge without being allocated.
type judge struct{ *outcome.Table }

// Now implements picker.Judge.
func (judge) Now() int64 { return monotonic() }

// start lies long before the process: 0 and small numbers are never a time, not even for a clock that starts in the year 2000, as that of
// testing/synctest does.
var start = time.Now().Add(-50 * 365 * 24 * time.Hour)

// monotonic returns the time since start in nanoseconds: one read of the monotonic clock, half the cost of time.Now.
func monotonic() int64 { return int64(time.Since(start)) }

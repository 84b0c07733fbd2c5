package balancer

import (
	"context"
	"slices"
	"sync"
	"time"

	gbalancer "google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer/picker"
)

// snapshot is the gRPC picker: an immutable view of the policy that every pick reads. It needs no lock of its own, since gRPC
// swaps pickers atomically.
type snapshot struct {
	table   *picker.Table
	conns   []gbalancer.SubConn // by the table's index; nil where not connected
	reader  *requestReader
	refusal error   // what a call gets when nothing is ready
	policy  *policy // for read-outs
}

// equal reports whether two snapshots pick alike.
func (s *snapshot) equal(o *snapshot) bool {
	return o != nil && s.table == o.table && s.reader == o.reader && s.refusal == o.refusal && slices.Equal(s.conns, o.conns)
}

// Pick implements gbalancer.Picker.
func (s *snapshot) Pick(info gbalancer.PickInfo) (gbalancer.PickResult, error) {
	call, own, key := picker.Find(info.Ctx)
	if call != nil && call.Inspect != nil {
		call.Inspect(s.policy)
		return gbalancer.PickResult{}, errInspected
	}
	a := newAttempt()
	a.read(call, own, key, &info, s.reader)
	a.query.Now = monotonic()
	choice := s.table.Pick(&a.query)
	if choice.Index < 0 {
		a.release()
		if choice.Reason == picker.Wait {
			return gbalancer.PickResult{}, gbalancer.ErrNoSubConnAvailable
		}
		return gbalancer.PickResult{}, s.refusal
	}
	a.begin(s.table.Member(choice.Index).Endpoint, choice.Reason)
	return gbalancer.PickResult{SubConn: s.conns[choice.Index], Done: a.done}, nil
}

var errInspected = status.Error(codes.Unavailable, Name+": read-out, not a call")

// attempt is one attempt of one call from Pick to Done.
type attempt struct {
	query    picker.Query
	ctx      context.Context
	call     *picker.Call // nil without the interceptor
	endpoint *picker.Endpoint
	cost     uint32
	reason   picker.Reason
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
// first pick.
func (a *attempt) read(call *picker.Call, own picker.Request, key uint64, info *gbalancer.PickInfo, r *requestReader) {
	a.ctx, a.call = info.Ctx, call
	if call == nil {
		a.query.Request, a.query.Key = r.read(own, key, info, nil)
		return
	}
	req, known, ok := call.Resolved()
	if ok {
		key = known
	} else {
		req, key = r.read(own, key, info, call.Message)
		call.Resolve(req, key)
	}
	a.query.Request, a.query.Key, a.query.Avoid = req, key, call.Tried()
}

func (a *attempt) begin(e *picker.Endpoint, reason picker.Reason) {
	a.endpoint, a.reason, a.cost = e, reason, a.query.Cost()
	e.Begin(a.cost, reason)
	if a.call != nil {
		a.call.Placed(e, reason)
	}
}

// end is the attempt's Done. gRPC calls it once, possibly after the policy was closed.
func (a *attempt) end(info gbalancer.DoneInfo) {
	e := a.endpoint
	switch o := outcomeOf(&info, a.ctx); o {
	case unsent:
		e.Unpick(a.cost, a.reason)
		if a.call != nil {
			a.call.Unplaced()
		}
	default:
		e.End(a.cost)
		if o != neutral && a.timed() {
			a.observe(o)
		}
	}
	a.release()
}

// timed reports whether the duration of the call says something about its endpoint's latency. That of a stream does not,
// nor that of an update: loading a model takes long on any server.
func (a *attempt) timed() bool {
	return a.query.Type != picker.Update && (a.call == nil || !a.call.Stream)
}

func (a *attempt) observe(o outcome) {
	now := monotonic()
	took := time.Duration(now - a.query.Now)
	if o == failure {
		a.endpoint.Observe(now, failureLatency(took, a.endpoint.Latency()))
		return
	}
	a.endpoint.Observe(now, took)
	if a.query.ModelID != "" {
		a.endpoint.ObserveModel(a.query.Key, a.query.ModelID, now, took, a.cost)
	}
}

func (a *attempt) release() {
	a.query.Request, a.query.Avoid = picker.Request{}, nil
	a.ctx, a.call, a.endpoint = nil, nil, nil
	attempts.Put(a)
}

var start = time.Now()

// monotonic returns the time since the process started, in nanoseconds: one read of the monotonic clock, half the cost of time.Now.
func monotonic() int64 { return int64(time.Since(start)) }

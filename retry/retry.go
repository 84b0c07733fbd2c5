package retry

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer/internal/methods"
	"github.com/mlbalancer/mlbalancer/picker"
)

const (
	// maxLookups is how many servers are asked for a model that those before do not have.
	maxLookups = 3
	// maxWait is the longest that a server can make a call wait for its next attempt. Of more its caller should know.
	maxWait = 10 * time.Second
)

// UnaryClientInterceptor returns the interceptor that sends failed calls to other servers, as the package's doc says.
//
// It works on calls that carry a record (picker.NewCall), so the interceptor that adds it must stand outside, and on channels
// whose policy is model_aware; it leaves all others alone. What call options receive (grpc.Header, grpc.Trailer, grpc.Peer) is of
// the attempt whose result the caller gets; grpc.OnFinish is called once, with that. Interceptors inside this one and stats
// handlers see each attempt as an RPC. A call that is not tried again costs no allocation.
func UnaryClientInterceptor(opts ...Option) grpc.UnaryClientInterceptor {
	return newRetrier(opts).intercept
}

type retrier struct {
	attempts int
	budget   *Budget
	stats    *Stats
}

// intercept implements grpc.UnaryClientInterceptor.
func (r *retrier) intercept(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	record := picker.CallFromContext(ctx)
	if record == nil || record.Inspect != nil {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	if m, ok := methods.Lookup(method); !ok || m.Class != methods.Infer {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	r.budget.Deposit(monotonic())
	opts, finish := splitOnFinish(opts)
	err := invoke(ctx, method, req, reply, cc, opts...)
	if err != nil && r.mayRepeat(record, method, req) {
		c := call{ctx: ctx, record: record, reply: reply, opts: append(slices.Clip(opts), grpc.WaitForReady(false))}
		err = r.repeat(&c, err, func() error { return invoke(ctx, method, req, reply, cc, c.opts...) })
	}
	for _, f := range finish {
		f.OnFinish(err)
	}
	return err
}

// mayRepeat reports whether a call that failed may go to another server at all.
func (r *retrier) mayRepeat(record *picker.Call, method string, req any) bool {
	_, o, _ := record.Last()
	if !o.Elsewhere() {
		return false
	}
	if placed, _ := record.Resolved(); placed != nil && placed.Type == picker.Update {
		return false
	}
	return methods.Portable(method, req)
}

// call is a call whose first attempt has failed.
type call struct {
	ctx    context.Context
	record *picker.Call
	reply  any
	// opts are those of further attempts. They do not wait for ready: a call that a server has failed is over when there is no
	// other one.
	opts []grpc.CallOption
}

// repeat makes attempts until one succeeds or there is to be no other, and returns what the call ends with. err is what the first
// attempt ended with.
func (r *retrier) repeat(c *call, err error, attempt func() error) error {
	fresh := c.record.Fresh
	c.record.Fresh = true
	defer func() { c.record.Fresh = fresh }()

	overloads := 0
	for sent := 1; ; sent++ {
		placed, o, pushback := c.record.Last()
		if o == picker.Overload {
			overloads++
		}
		switch {
		case !o.Elsewhere() || overloads > 1 || status.Code(err) == codes.DeadlineExceeded || !c.canWait(pushback):
			return err
		case sent == r.attempts || sent == maxLookups && o == picker.Misplaced:
			r.stats.Exhausted.Add(1)
			return err
		case !free(o) && !r.budget.TryWithdraw(monotonic()):
			r.stats.Refused.Add(1)
			return err
		}
		refund := func() {
			if !free(o) {
				r.budget.Refund(monotonic())
			}
		}
		if ended := c.wait(pushback); ended != nil {
			refund()
			return ended
		}

		restore := hold(c.opts)
		reset(c.reply)
		next := attempt()
		if after, _, _ := c.record.Last(); after == placed { // it reached no server
			refund()
			if c.ctx.Err() != nil {
				return next
			}
			restore()
			r.stats.Exhausted.Add(1)
			return err
		}
		r.stats.Sent.Add(1)
		if err = next; err == nil {
			return nil
		}
	}
}

// free reports whether an attempt after one that ended so costs nothing from the budget: a server that does not hold the model, or is going
// away, has done no work for the call, and is not asked again for a while.
func free(o picker.Outcome) bool { return o == picker.Misplaced || o == picker.Draining }

// canWait reports whether the next attempt may start when a server wants it to.
func (c *call) canWait(pushback time.Duration) bool {
	if pushback < 0 || pushback > maxWait || c.ctx.Err() != nil {
		return false
	}
	deadline, ok := c.ctx.Deadline()
	return !ok || time.Until(deadline) > pushback
}

// wait lets a pushback pass. If the call ends meanwhile, it returns with what.
func (c *call) wait(pushback time.Duration) error {
	if pushback == 0 {
		return nil
	}
	timer := time.NewTimer(pushback)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-c.ctx.Done():
		return status.FromContextError(c.ctx.Err()).Err()
	}
}

var start = time.Now()

// monotonic returns the time since the process started, in nanoseconds.
func monotonic() int64 { return int64(time.Since(start)) }

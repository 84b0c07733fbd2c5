package monitor

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mlbalancer/mlbalancer/health"
)

// What a server may say. What comes faster than one report per slot is put together and delivered at the next one: the sink sees
// each model's last state at most a slot late. A server that goes far beyond that is cut off, and asked again like one that has
// failed: to read it slowly would not help, as all that the connection's buffers hold would then be old news.
const (
	slot       = 20 * time.Millisecond
	maxReports = 1000 // a second
	maxModels  = 4096 // added to other reports in a slot
)

var errFlood = errors.New("monitor: the server says more than can be of use")

// outbox hands the reports of one source to the sink.
type outbox struct {
	sink   Sink
	source int

	// Set by begin, for one Watch.
	ctx  context.Context
	stop context.CancelCauseFunc

	// Only touched by begin, put and end, which are called one after the other.
	window   time.Time     // the second in which reports are counted
	count    int           // of reports in it
	sent     time.Time     // when put last delivered a report
	interval time.Duration // of the last report
	stands   bool          // something was reported, and not withdrawn
	settled  bool          // the first report or Silent has been

	late sync.WaitGroup // of deliver

	mu         sync.Mutex // guards what follows
	delivering bool       // deliver runs
	pending    batch
	delivered  batch // only touched by deliver
}

// begin prepares for the reports of one Watch.
func (b *outbox) begin(ctx context.Context, stop context.CancelCauseFunc) {
	b.ctx, b.stop = ctx, stop
	b.window = time.Time{}
}

// put takes a report, and delivers it unless it comes too soon after another. Nothing that comes after the end of ctx counts.
func (b *outbox) put(r *health.Report) {
	if b.ctx.Err() != nil {
		return
	}
	now := time.Now()
	if now.Sub(b.window) >= time.Second {
		b.window, b.count = now, 0
	}
	if b.count++; b.count > maxReports {
		b.stop(errFlood)
		return
	}
	b.settled, b.stands, b.interval = true, true, r.Interval

	wait := slot - now.Sub(b.sent)
	b.mu.Lock()
	if wait <= 0 && !b.delivering {
		b.mu.Unlock()
		b.sent = now
		b.sink.Report(b.source, r)
		return
	}
	defer b.mu.Unlock()
	b.pending.add(r)
	if b.pending.merged > maxModels {
		b.stop(errFlood)
	}
	if !b.delivering {
		b.delivering = true
		b.late.Go(func() { b.deliver(wait) })
	}
}

// deliver delivers what is pending after some time, and then once per slot, until there is nothing or the Watch is over.
func (b *outbox) deliver(wait time.Duration) {
	for Sleep(b.ctx, wait) {
		b.mu.Lock()
		if b.pending.empty() {
			b.delivering = false
			b.mu.Unlock()
			return
		}
		b.pending, b.delivered = b.delivered, b.pending
		b.mu.Unlock()
		b.sink.Report(b.source, &b.delivered.report)
		b.delivered.clear()
		wait = slot
	}
}

// end says what has become of the source's word when a Watch is over, for good or not, and nobody delivers any more.
func (b *outbox) end(last bool) {
	if !b.settled {
		b.settled = true
		b.sink.Silent(b.source)
	}
	if b.stands && (last || b.interval == 0) {
		b.stands = false
		b.sink.Withdraw(b.source)
	} else if !b.pending.empty() {
		b.sink.Report(b.source, &b.pending.report)
	}
	b.pending.clear()
	b.delivering = false
}

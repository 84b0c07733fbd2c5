package monitor

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer/health"
)

// Sink takes what the sources say of one server. Sources are named by their numbers (see Names). The calls for one source come
// one after the other, those for several at the same time; no lock of ours is held meanwhile.
type Sink interface {
	// Report takes what a source says: at most one report in 20 ms from each, several having been put together where it said
	// more. The report is the source's again on return.
	Report(source int, r *health.Report)
	// Withdraw takes back all that a source has said.
	Withdraw(source int)
	// Silent says that nobody need wait for the first word of a source: it has nothing to say of this server, was refused, or has
	// failed its first try. It is called at most once, and only if there was no report before. One may still follow.
	Silent(source int)
}

// Run asks a server, over conn, for what each of some sources can learn of it (their numbers; see Names), and hands that to sink.
// Its calls are marked by ProbeContext. It returns when ctx is done, or once no source has anything more to say, with none of its
// goroutines left. The end of ctx withdraws nothing: what was said over a connection that is gone is the caller's to forget.
func Run(ctx context.Context, conn grpc.ClientConnInterface, sources []int, o *Options, sink Sink) {
	var wg sync.WaitGroup
	for _, n := range sources {
		a := &asker{source: registry[n], conn: conn, options: o, out: outbox{sink: sink, source: n}}
		wg.Go(func() { a.run(ProbeContext(ctx)) })
	}
	wg.Wait()
}

// asker asks one server through one source.
type asker struct {
	source  Source
	conn    grpc.ClientConnInterface
	options *Options
	out     outbox
}

// run asks, again and again, until ctx is done or there is nothing to learn.
func (a *asker) run(ctx context.Context) {
	var backoff Backoff
	for {
		began := time.Now()
		err := a.watch(ctx)
		if ctx.Err() != nil {
			return
		}
		last := err == nil || status.Code(err) == codes.Unimplemented
		a.out.end(last)
		if last {
			return
		}
		delay := backoff.Next(time.Since(began))
		if Denied(err) {
			delay = spread(deniedDelay)
		}
		if !Sleep(ctx, delay) {
			return
		}
	}
}

// watch asks once. None of its goroutines is left when it returns.
func (a *asker) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer a.out.late.Wait()
	defer cancel(nil)
	a.out.begin(ctx, cancel)
	err := a.source.Watch(ctx, a.conn, a.options, a.out.put)
	if context.Cause(ctx) == errFlood {
		return errFlood
	}
	return err
}

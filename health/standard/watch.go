package standard

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer/health"
	"github.com/mlbalancer/mlbalancer/health/monitor"
)

// watcher follows one server through Watch. Its streams send what they hear to the goroutine of watch, which alone touches the
// rest.
type watcher struct {
	client  healthpb.HealthClient
	options *monitor.Options
	heard   chan word
	streams sync.WaitGroup
	models  models
	report  health.Report // used again and again
}

// word is what a stream has heard.
type word struct {
	model  *model // nil: of the server as a whole
	status serving
	err    error // why the stream of the server has ended
}

// watch follows the server, and from its first word on the models in use, until the stream of the server ends.
func watch(ctx context.Context, client healthpb.HealthClient, o *monitor.Options, report func(*health.Report)) error {
	w := &watcher{client: client, options: o, heard: make(chan word)}
	w.models.byName = map[string]*model{}
	defer w.streams.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	w.streams.Go(func() {
		err := follow(ctx, client, "", func(s serving) bool { return w.send(ctx, word{status: s}) })
		w.send(ctx, word{err: err})
	})
	var tick <-chan time.Time
	for {
		w.report.Models = w.report.Models[:0]
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick:
			if w.look(ctx); len(w.report.Models) > 0 {
				report(&w.report)
			}
			continue
		case h := <-w.heard:
			switch {
			case h.err != nil:
				return h.err
			case h.model != nil:
				w.report.Models = w.models.hear(h.model, h.status, w.report.Models)
				if w.models.named { // one that keeps states of models loads none for a call
					w.report.OnDemand = health.No
				}
			default:
				w.report.Server = server(h.status)
			}
		}
		report(&w.report)
		if tick == nil {
			ticker := time.NewTicker(o.Interval)
			defer ticker.Stop()
			tick = ticker.C
			w.look(ctx)
		}
	}
}

// send passes on what a stream has heard, and reports whether ctx, which is the stream's, is still alive.
func (w *watcher) send(ctx context.Context, h word) bool {
	select {
	case <-ctx.Done():
		return false
	case w.heard <- h:
		return true
	}
}

// look compares the models that are watched with those in use.
func (w *watcher) look(ctx context.Context) {
	var start []*model
	start, w.report.Models = w.models.update(w.options.Models(), w.report.Models)
	for _, m := range start {
		mctx, stop := context.WithCancel(ctx)
		m.stop = stop
		w.streams.Go(func() { w.followModel(mctx, m) })
	}
}

// followModel follows a model until ctx is done. A stream that ends takes back what it said.
func (w *watcher) followModel(ctx context.Context, m *model) {
	var backoff monitor.Backoff
	for {
		began := time.Now()
		err := follow(ctx, w.client, m.name, func(s serving) bool { return w.send(ctx, word{model: m, status: s}) })
		h := word{model: m, status: healthpb.HealthCheckResponse_UNKNOWN}
		if status.Code(err) == codes.NotFound { // what Check says of a name that it does not know; some say it here too
			h.status = healthpb.HealthCheckResponse_SERVICE_UNKNOWN
		}
		if !w.send(ctx, h) || !monitor.Sleep(ctx, backoff.Next(time.Since(began))) {
			return
		}
	}
}

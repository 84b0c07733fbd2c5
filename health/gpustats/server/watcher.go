package server

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	gpb "github.com/mlbalancer/mlbalancer/proto/mlbalancer/gpustats/v1"
)

// watcher is one call of Watch. It holds the report that it sent last and nothing that is still to be sent: when it may send
// again it takes what is newest then.
type watcher struct {
	server    *Server
	stream    grpc.ServerStreamingServer[gpb.NodeReport]
	filter    filter
	minChange float64
	interval  time.Duration
	timer     *time.Timer

	seen   *update // the last update that was sent, or found to be too small a change
	sent   *gpb.NodeReport
	sentAt time.Time
}

// run sends reports until the watch is over.
func (w *watcher) run() error {
	for {
		if err := w.send(w.server.current()); err != nil {
			return err
		}
		if err := w.wait(); err != nil {
			return err
		}
	}
}

func (w *watcher) send(st *state) error {
	w.sentAt, w.seen = time.Now(), st.of
	w.sent = w.filter.apply(st.report)
	if len(w.filter) > 0 {
		return w.stream.Send(w.sent)
	}
	wire, err := st.wire()
	if err != nil {
		return err
	}
	return w.stream.Send(wire)
}

// wait returns when another report is to be sent: the interval is over, or there is a change and it is this watcher's turn.
func (w *watcher) wait() error {
	due := w.sentAt.Add(w.interval)
	rest := w.sentAt.Add(w.server.share())
	for {
		if err := w.pause(earlier(rest, due), nil); err != nil {
			return err
		}
		if err := w.pause(due, w.server.changes(w.seen)); err != nil {
			return err
		}
		now := time.Now()
		if !now.Before(due) {
			return nil
		}
		st := w.server.current()
		if differ(w.sent, w.filter.apply(st.report), w.minChange) {
			return w.pause(earlier(w.server.nextTurn(now), due), nil)
		}
		w.seen = st.of
		rest = now.Add(w.server.share())
	}
}

// pause returns at t, or when wake is closed, and with an error once the watch is over.
func (w *watcher) pause(t time.Time, wake <-chan struct{}) error {
	come := passed
	if left := time.Until(t); left > 0 { // a timer of no time may crash the race detector in virtual time (see internal/memconn)
		w.timer.Reset(left)
		come = w.timer.C
	}
	ctx := w.stream.Context()
	select {
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	case <-w.server.closed:
		return errClosed
	case <-wake:
	case <-come:
	}
	return nil
}

// passed is the channel of a timer whose time has come.
var passed = func() <-chan time.Time {
	c := make(chan time.Time)
	close(c)
	return c
}()

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

package breakers

import (
	"context"
	"slices"
	"sync"
	"time"

	gstats "google.golang.org/grpc/stats"
)

// attempt is one attempt of a call that was sent to a server.
type attempt struct {
	server     int // -1 if it was sent to none
	begin, end time.Time
	failed     bool
}

// attempts hears from gRPC of each attempt of a channel.
type attempts struct {
	addrs []string // where the servers listen

	mu    sync.Mutex
	ended []attempt
}

type attemptKey struct{}

// TagRPC implements stats.Handler.
func (a *attempts) TagRPC(ctx context.Context, _ *gstats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, attemptKey{}, &attempt{server: -1})
}

// HandleRPC implements stats.Handler.
func (a *attempts) HandleRPC(ctx context.Context, s gstats.RPCStats) {
	at, _ := ctx.Value(attemptKey{}).(*attempt)
	if at == nil {
		return
	}
	switch s := s.(type) {
	case *gstats.OutHeader:
		at.begin, at.server = time.Now(), slices.Index(a.addrs, s.RemoteAddr.String())
	case *gstats.End:
		if at.server < 0 {
			return
		}
		at.end, at.failed = s.EndTime, s.Error != nil
		a.mu.Lock()
		a.ended = append(a.ended, *at)
		a.mu.Unlock()
	}
}

// TagConn implements stats.Handler.
func (a *attempts) TagConn(ctx context.Context, _ *gstats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (a *attempts) HandleConn(context.Context, gstats.ConnStats) {}

// inFlight returns how many attempts were on their way to a server at a moment.
func (a *attempts) inFlight(server int, at time.Time) int {
	return a.count(func(x *attempt) bool { return x.server == server && !x.begin.After(at) && x.end.After(at) })
}

// failed returns how many attempts failed on a server that ended after a moment.
func (a *attempts) failed(server int, after time.Time) int {
	return a.count(func(x *attempt) bool { return x.server == server && x.failed && x.end.After(after) })
}

func (a *attempts) count(is func(*attempt) bool) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for i := range a.ended {
		if is(&a.ended[i]) {
			n++
		}
	}
	return n
}

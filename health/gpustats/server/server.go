// Package server serves mlbalancer.gpustats.v1.GPUStats. A model server, or a sidecar of one, embeds a Server and tells it what
// is new as often as it likes; the Server decides who hears of it when, so that reports cost the same however many clients
// watch.
package server

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	gpb "github.com/mlbalancer/mlbalancer/proto/mlbalancer/gpustats/v1"
)

// Defaults and bounds.
const (
	// DefaultBudget is how many reports of changes are sent per second, to all watchers together.
	DefaultBudget = 200
	// DefaultMaxWatchers is how many watchers there may be at a time.
	DefaultMaxWatchers = 1024
	// DefaultInterval is the interval of a watcher that asks for none; MinInterval and MaxInterval bound what one may ask for.
	DefaultInterval = time.Second
	MinInterval     = 10 * time.Millisecond
	MaxInterval     = time.Minute
)

// Options is what a Server may spend. The zero value is the defaults.
type Options struct {
	// Budget is how many reports of changes are sent per second, to all watchers together: each of n watchers gets Budget/n at
	// most, and no two are sent at once. A watcher whose interval is shorter than that share gets its reports all the same.
	// 0 or less: DefaultBudget.
	Budget float64
	// MaxWatchers is how many watchers there may be at a time; one more is refused with RESOURCE_EXHAUSTED. 0 or less:
	// DefaultMaxWatchers.
	MaxWatchers int
}

// Server sends the newest report of a model server to its watchers. Until the first update it sends reports that say nothing. All
// methods may be called concurrently.
type Server struct {
	gpb.UnimplementedGPUStatsServer

	gap         time.Duration // between two reports of changes, whoever they are for
	maxWatchers int
	closed      chan struct{}
	close       func()

	latest atomic.Pointer[update]

	mu       sync.Mutex    // protects what follows; nothing that takes time is done under it
	changed  chan struct{} // closed at the next update, if waited
	waited   bool
	watchers int
	turn     time.Time // when the next report of a change may be sent

	stateMu sync.Mutex // protects what follows
	state   *state
	serial  uint64
}

// New returns a Server that is to be registered.
func New(o Options) *Server {
	if !(o.Budget > 0) {
		o.Budget = DefaultBudget
	}
	if o.MaxWatchers <= 0 {
		o.MaxWatchers = DefaultMaxWatchers
	}
	closed := make(chan struct{})
	s := &Server{
		gap:         time.Duration(min(float64(time.Second)/o.Budget, float64(MaxInterval))),
		maxWatchers: o.MaxWatchers,
		closed:      closed,
		close:       sync.OnceFunc(func() { close(closed) }),
		changed:     make(chan struct{}),
	}
	s.latest.Store(&update{at: time.Now()})
	return s
}

// Register makes r, which is a *grpc.Server as a rule, serve the reports.
func (s *Server) Register(r grpc.ServiceRegistrar) { gpb.RegisterGPUStatsServer(r, s) }

// Update makes r what is reported from now on; nil says nothing. It takes no time that depends on r or on who watches. Nobody may
// change r, or what it points to, after that.
//
// The Server fills in the sequence. If r has no sampled_at, it is taken to hold until the next Update: each report is then
// stamped with the time at which it is made, and what r says relative to it is moved on. If r has one, it stays as it is.
func (s *Server) Update(r *gpb.NodeReport) { s.publish(&update{report: r, at: time.Now()}) }

// UpdateFunc says that something has changed, and that sample is to be asked for the report from now on, whenever one is due:
// once per update at most, and every 10 ms, however many watch. sample is called from one goroutine at a time, and may take a
// lock that is held when UpdateFunc is called; what it returns is treated as by Update.
func (s *Server) UpdateFunc(sample func() *gpb.NodeReport) { s.publish(&update{sample: sample}) }

// Close ends all watches with UNAVAILABLE, and refuses new ones. A watch whose client reads nothing ends when its connection
// does. Close does not wait for them, and may be called again.
func (s *Server) Close() { s.close() }

// Get implements gpustatsv1.GPUStatsServer.
func (s *Server) Get(_ context.Context, req *gpb.GetRequest) (*gpb.NodeReport, error) {
	f, err := newFilter(req.GetModels())
	if err != nil {
		return nil, err
	}
	return f.apply(s.current().report), nil
}

// Watch implements gpustatsv1.GPUStatsServer.
func (s *Server) Watch(req *gpb.WatchRequest, stream grpc.ServerStreamingServer[gpb.NodeReport]) error {
	f, err := newFilter(req.GetModels())
	if err != nil {
		return err
	}
	minChange := req.GetMinChange()
	if !(minChange >= 0 && minChange <= 1) {
		return status.Errorf(codes.InvalidArgument, "gpustats: min_change is %v, want a number from 0 to 1", minChange)
	}
	if err := s.join(); err != nil {
		return err
	}
	defer s.leave()
	w := &watcher{
		server:    s,
		stream:    stream,
		filter:    f,
		minChange: minChange,
		interval:  interval(req),
		timer:     time.NewTimer(math.MaxInt64),
	}
	defer w.timer.Stop()
	return w.run()
}

// interval returns what a watcher asks for, within the bounds.
func interval(req *gpb.WatchRequest) time.Duration {
	d := req.GetInterval().AsDuration()
	if d <= 0 {
		return DefaultInterval
	}
	return max(MinInterval, min(d, MaxInterval))
}

func (s *Server) join() error {
	select {
	case <-s.closed:
		return errClosed
	default:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watchers >= s.maxWatchers {
		return status.Errorf(codes.ResourceExhausted, "gpustats: there are %d watchers, and the server takes at most %d",
			s.watchers, s.maxWatchers)
	}
	s.watchers++
	return nil
}

func (s *Server) leave() {
	s.mu.Lock()
	s.watchers--
	s.mu.Unlock()
}

// publish makes u the latest update and wakes whoever waits for one. A watcher waits only once its share of the budget allows it
// another report, so on average no more of them are woken than the budget has reports.
func (s *Server) publish(u *update) {
	s.latest.Store(u)
	s.mu.Lock()
	if s.waited {
		close(s.changed)
		s.changed, s.waited = make(chan struct{}), false
	}
	s.mu.Unlock()
}

// changes returns a channel that is closed as soon as there is another update than seen.
func (s *Server) changes(seen *update) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.latest.Load() != seen {
		return always
	}
	s.waited = true
	return s.changed
}

// share returns how long a watcher rests after a report, so that all of them together keep to the budget.
func (s *Server) share() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return min(s.gap*time.Duration(s.watchers), MaxInterval)
}

// nextTurn returns when its caller may send a report of a change; each caller gets another time.
func (s *Server) nextTurn(now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.turn
	if at.Before(now) {
		at = now
	}
	s.turn = at.Add(s.gap)
	return at
}

var (
	errClosed = status.Error(codes.Unavailable, "gpustats: the server ends its watches")
	always    = func() chan struct{} { c := make(chan struct{}); close(c); return c }()
)

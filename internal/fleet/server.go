package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/mlbalancer/mlbalancer/health/gpustats/server"
	"github.com/mlbalancer/mlbalancer/internal/memconn"
	"github.com/mlbalancer/mlbalancer/internal/oip"
)

// pipeSize is the buffer of an in-memory connection, in bytes each way.
const pipeSize = 1 << 20

// Server is one simulated model server. All its methods are safe for concurrent use.
type Server struct {
	cfg        *Config
	index      int
	repository map[string]bool // the models that can be loaded; empty means any
	addr       string          // the first start puts the port in
	addrOnce   sync.Once

	life    sync.Mutex // held while the server is being started; protects closed
	closed  bool
	serving sync.WaitGroup

	mu         sync.Mutex         // protects what follows
	grpc       *grpc.Server       // nil while the server is down
	pipe       *memconn.Listener  // nil while the server is down, and on a loopback port
	stats      *server.Server     // of mlbalancer.gpustats.v1; nil while the server is down
	stopping   <-chan struct{}    // closed when grpc begins to stop
	endWatches context.CancelFunc // closes it
	served     chan struct{}      // closed when grpc serves no more

	gpu    *gpu
	clock  clock
	timer  *time.Timer // calls wake when the gpu is due
	draws  draws
	faults faults
	tally  *tally
	events []Event
	gone   chan struct{} // closed when a Reset ends the calls in flight

	open    int // calls
	meter   meter
	last    vitals        // as they were before
	news    bool          // whether faults have changed what signals say
	changed chan struct{} // closed, and replaced, when models, readiness or news change what signals say
}

// vitals sum up all that changes what signals say, but for the time.
type vitals struct {
	running, queued, waits, open int
	moves, loads                 uint64
	ready                        bool
}

// tally is what a server counts between two Resets.
type tally struct {
	counters
	calls, ok uint64
	errors    map[codes.Code]uint64
}

func newServer(cfg *Config, index int) *Server {
	s := &Server{cfg: cfg, index: index, addr: "127.0.0.1:0", repository: make(map[string]bool, len(cfg.Models))}
	s.changed = make(chan struct{})
	if cfg.InMemory {
		s.addr = s.Name() + ":8001"
	}
	for _, m := range cfg.Models {
		s.repository[m] = true
	}
	s.timer = time.AfterFunc(time.Hour, s.wake)
	s.timer.Stop() // until something is due
	s.clean()
	return s
}

// Name returns the server's name, "server-0" and so on. It answers ServerMetadata, and stands in each response's parameters.
func (s *Server) Name() string { return fmt.Sprintf("server-%d", s.index) }

// Addr returns the address that the server listens on, host:port.
func (s *Server) Addr() string { return s.addr }

// Dial opens a connection to the server, over its in-memory pipe if that is where it listens.
func (s *Server) Dial(ctx context.Context) (net.Conn, error) {
	if !s.cfg.InMemory {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", s.addr)
	}
	s.mu.Lock()
	pipe := s.pipe
	s.mu.Unlock()
	if pipe == nil {
		return nil, fmt.Errorf("fleet: connect to %s: connection refused", s.addr)
	}
	return pipe.DialContext(ctx)
}

// Stats returns what the server has counted since the start or the last Reset of the fleet.
func (s *Server) Stats() Stats {
	var st Stats
	s.update(func() {
		t, g := s.tally, s.gpu
		st = Stats{
			Server: s.Name(), Calls: t.calls, OK: t.ok, Errors: maps.Clone(t.errors),
			Hits: t.hits, ColdCalls: t.coldCalls, ColdLoads: t.coldLoads, Loads: t.loads, Evictions: t.evictions,
			Busy: g.busy(), Running: len(g.running), Queued: g.queued, Waiting: g.waits,
		}
		for _, m := range g.inOrder() {
			if m.state == resident {
				st.Resident = append(st.Resident, m.name)
			}
		}
	})
	return st
}

// Events returns what happened in the server's memory since the start or the last Reset of the fleet, in order.
func (s *Server) Events() []Event {
	var events []Event
	s.update(func() { events = slices.Clone(s.events) })
	return events
}

// Preload makes models resident at once, as far as there is room, and returns how many of them are.
func (s *Server) Preload(models ...string) int {
	n := 0
	s.update(func() {
		for _, m := range models {
			if s.known(m) && s.gpu.place(m) {
				n++
			}
		}
	})
	return n
}

// Evict takes a model out of memory when the requests that it holds are finished; later ones find it gone. It reports
// whether the model was resident or being loaded; the load is finished first.
func (s *Server) Evict(model string) bool {
	var found bool
	s.update(func() { found = s.gpu.unload(model) })
	return found
}

// Kill stops the server as SIGKILL does: connections are cut, calls in flight fail, new connections are refused. Memory is lost.
func (s *Server) Kill() {
	s.stop(func(srv *grpc.Server, _ context.CancelFunc) { srv.Stop() })
}

// GracefulStop takes no more calls, waits until those in flight have ended, streams included, and stops the server. Kill ends
// the wait.
func (s *Server) GracefulStop() {
	s.stop(func(srv *grpc.Server, endWatches context.CancelFunc) {
		endWatches()
		srv.GracefulStop()
	})
}

// Restart stops the server like Kill if it is up, and starts it again on the same address with empty memory and no faults.
// Counters and events go on. It fails if the address is taken, or the fleet closed.
func (s *Server) Restart() error {
	s.Kill()
	return s.start()
}

// start starts the server if it is down.
func (s *Server) start() error {
	s.life.Lock()
	defer s.life.Unlock()
	if s.closed {
		return errors.New("fleet: the fleet is closed")
	}
	s.mu.Lock()
	up := s.grpc != nil
	s.mu.Unlock()
	if up {
		return nil
	}
	lis, err := s.listen()
	if err != nil {
		return fmt.Errorf("fleet: %s: %w", s.Name(), err)
	}
	if !s.cfg.InMemory {
		s.addrOnce.Do(func() { s.addr = lis.Addr().String() })
	}

	// Triton takes messages of any size. Waiting for handlers leaves no call behind that would still count.
	opts := []grpc.ServerOption{grpc.MaxRecvMsgSize(math.MaxInt32), grpc.MaxSendMsgSize(math.MaxInt32)}
	opts = append(opts, s.cfg.ServerOptions...)
	srv := grpc.NewServer(append(opts, grpc.WaitForHandlers(true))...)
	oip.RegisterGRPCInferenceServiceServer(srv, &service{server: s})
	ctx, endWatches := context.WithCancel(context.Background())
	served := make(chan struct{})
	s.registerHealth(srv)
	stats := s.registerGPUStats(ctx, srv)

	s.mu.Lock()
	s.grpc, s.stats, s.stopping, s.endWatches, s.served = srv, stats, ctx.Done(), endWatches, served
	s.pipe, _ = lis.(*memconn.Listener)
	s.mu.Unlock()
	s.serving.Go(func() {
		defer close(served)
		_ = srv.Serve(lis) // ends with nil or ErrServerStopped, whichever comes first
	})
	return nil
}

func (s *Server) listen() (net.Listener, error) {
	if s.cfg.InMemory {
		return memconn.Listen(pipeSize), nil
	}
	return net.Listen("tcp", s.addr)
}

// stop stops the server in the given way, if it is up.
func (s *Server) stop(how func(srv *grpc.Server, endWatches context.CancelFunc)) {
	s.mu.Lock()
	srv, endWatches, served := s.grpc, s.endWatches, s.served
	s.mu.Unlock()
	if srv == nil {
		return
	}
	defer endWatches()
	how(srv, endWatches)
	<-served // a server that is stopped before it serves closes its listener only then
	s.update(func() {
		if s.grpc == srv { // else another stop was faster
			s.grpc, s.stats, s.pipe = nil, nil, nil
			s.boot()
		}
	})
}

// reset makes the server as it was before its first call.
func (s *Server) reset() error {
	s.update(func() {
		close(s.gone)
		s.clean()
	})
	return s.start()
}

func (s *Server) close() {
	s.life.Lock()
	s.closed = true
	s.life.Unlock()
	s.Kill()
	s.serving.Wait()
	s.mu.Lock()
	s.timer.Stop()
	s.mu.Unlock()
}

// clean zeroes all that the server has counted and drawn, and empties its memory.
func (s *Server) clean() {
	s.draws = newDraws(s.cfg.Seed, s.index)
	s.gone = make(chan struct{})
	s.tally = &tally{errors: make(map[codes.Code]uint64)}
	s.boot()
	s.events = nil
}

// boot gives the server an empty memory and no faults.
func (s *Server) boot() {
	if s.gpu != nil {
		s.gpu.stop()
	}
	s.faults, s.news = faults{}, true
	s.clock = clock{start: time.Now(), scale: s.cfg.Scale}
	s.gpu = newGPU(s.cfg.Workers, s.cfg.Slots, &s.tally.counters)
	s.gpu.explicit = s.cfg.Explicit
	s.gpu.loadTime = func() time.Duration { return lognormal(s.draws.load, s.cfg.Load, s.cfg.LoadCV) }
	s.meter = meter{busy: s.tally.busy, calls: s.tally.ok}
	clock := s.clock
	s.gpu.record = func(at time.Duration, model string, kind EventKind) {
		s.events = append(s.events, Event{Time: clock.at(at), Server: s.index, Model: model, Kind: kind})
	}
}

// update runs f, which reads or changes what mu protects, at the present time.
func (s *Server) update(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gpu.advance(s.clock.now())
	f()
	s.notify()
	s.arm()
}

// notify tells those who watch the server's signals if there is something new to say.
func (s *Server) notify() {
	g := s.gpu
	now := vitals{
		running: len(g.running), queued: g.queued, waits: g.waits, open: s.open,
		moves: g.moves, loads: g.count.loads, ready: s.faults.ready(g.now),
	}
	if now == s.last && !s.news {
		return
	}
	if s.news || now.moves != s.last.moves || now.ready != s.last.ready {
		close(s.changed)
		s.changed = make(chan struct{})
	}
	s.last, s.news = now, false
	if s.stats != nil && s.cfg.Signals&GPUStats != 0 {
		s.stats.UpdateFunc(s.sample)
	}
}

// wake lets happen what is due.
func (s *Server) wake() { s.update(func() {}) }

// arm sets the timer to when something is due next.
func (s *Server) arm() {
	at, ok := s.gpu.next()
	if flap, flaps := s.faults.nextFlap(s.gpu.now); flaps && s.grpc != nil && (!ok || flap < at) {
		at, ok = flap, true
	}
	if ok {
		s.timer.Reset(max(1, s.clock.wall(at-s.clock.now()))) // what is due has happened: the clock has to move on
	}
}

// known reports whether the server's repository has a model.
func (s *Server) known(model string) bool {
	return model != "" && (len(s.repository) == 0 || s.repository[model])
}

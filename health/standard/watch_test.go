package standard

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	ghealth "google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer/health"
	"github.com/mlbalancer/mlbalancer/health/monitor"
	"github.com/mlbalancer/mlbalancer/health/monitor/monitortest"
)

type watchStream = grpc.ServerStreamingServer[healthpb.HealthCheckResponse]

const (
	statusServing    = healthpb.HealthCheckResponse_SERVING
	statusNotServing = healthpb.HealthCheckResponse_NOT_SERVING
	statusUnknown    = healthpb.HealthCheckResponse_UNKNOWN
	interval         = time.Second
)

// healthServer is gRPC's own health service, which counts the streams that are open for each name.
type healthServer struct {
	*ghealth.Server
	mu     sync.Mutex
	open   map[string]int
	opened map[string]int
}

func (s *healthServer) Watch(r *healthpb.HealthCheckRequest, stream watchStream) error {
	s.add(r.GetService(), 1)
	defer s.add(r.GetService(), -1)
	return s.Server.Watch(r, stream)
}

func (s *healthServer) add(name string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[name] += n
	if n > 0 {
		s.opened[name]++
	}
	if s.open[name] == 0 {
		delete(s.open, name)
	}
}

// streams returns the names of models that are watched now, and how many streams were opened for models so far.
func (s *healthServer) streams() (names []string, opened int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.open {
		if name != "" {
			names = append(names, name)
		}
	}
	for name, n := range s.opened {
		if name != "" {
			opened += n
		}
	}
	return names, opened
}

// inUse is the models that a channel uses.
type inUse struct {
	mu    sync.Mutex
	names []string
}

func (u *inUse) set(names ...string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.names = names
}

func (u *inUse) get() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.names
}

func numbered(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint(prefix, i)
	}
	return names
}

func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Parallel()
	synctest.Test(t, test)
}

// start watches a server until the test ends, and returns what is reported.
func start(t *testing.T, service healthpb.HealthServer, models *inUse) (*monitortest.Record, func() error) {
	conn := monitortest.Serve(t, func(s *grpc.Server) { healthpb.RegisterHealthServer(s, service) })
	ctx, cancel := context.WithCancel(t.Context())
	r := &monitortest.Record{}
	done := make(chan error, 1)
	go func() {
		done <- source{}.Watch(ctx, conn, &monitor.Options{Interval: interval, Models: models.get}, r.Add)
	}()
	var once sync.Once
	var err error
	stop := func() error {
		once.Do(func() {
			cancel()
			err = <-done
		})
		return err
	}
	t.Cleanup(func() { _ = stop() })
	synctest.Wait()
	return r, stop
}

func newServer() *healthServer {
	return &healthServer{Server: ghealth.NewServer(), open: map[string]int{}, opened: map[string]int{}}
}

func TestTheServerAsAWhole(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newServer()
		r, stop := start(t, s, &inUse{})
		for _, c := range []struct {
			status serving
			want   health.ServerState
		}{
			{statusServing, health.ServerReady},
			{statusNotServing, health.ServerNotReady},
			{statusUnknown, health.ServerUnknown},
			{healthpb.HealthCheckResponse_SERVICE_UNKNOWN, health.ServerNotReady},
			{77, health.ServerUnknown},
			{statusServing, health.ServerReady},
		} {
			s.SetServingStatus("", c.status)
			synctest.Wait()
			require.Equal(t, health.Report{Server: c.want}, r.Now().Report, "%v", c.status)
		}
		assert.ErrorIs(t, stop(), context.Canceled)
		synctest.Wait()
		assert.Empty(t, s.open, "no stream stays")
	})
}

// HLTH-04: a server that is not ready while it loads a model says so of its models one by one. HLTH-05: and of a model that was
// unloaded. Of the models that it has never named it says nothing.
func TestModelsByName(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newServer()
		s.SetServingStatus("", statusNotServing)
		s.SetServingStatus("A", statusServing)
		r, _ := start(t, s, &inUse{names: []string{"A", "Z"}})
		assert.Equal(t, health.ServerNotReady, r.Now().Report.Server)
		assert.Zero(t, r.Now().Report.Interval, "it holds until it is withdrawn")
		assert.Equal(t, map[string]health.ModelState{"A": health.ModelReady}, r.States())
		for _, c := range []struct {
			status serving
			want   health.ModelState
		}{
			{statusNotServing, health.ModelUnavailable},
			{healthpb.HealthCheckResponse_SERVICE_UNKNOWN, health.ModelAbsent},
			{statusServing, health.ModelReady},
		} {
			s.SetServingStatus("A", c.status)
			synctest.Wait()
			assert.Equal(t, map[string]health.ModelState{"A": c.want}, r.States())
		}
		s.SetServingStatus("Z", statusServing)
		synctest.Wait()
		assert.Equal(t, map[string]health.ModelState{"A": health.ModelReady, "Z": health.ModelReady}, r.States())
	})
}

func TestNamesThatWereNeverKnownSayNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newServer()
		r, _ := start(t, s, &inUse{names: []string{"A", "B", "C"}})
		time.Sleep(10 * interval)
		synctest.Wait()
		assert.Empty(t, r.States())
		assert.Equal(t, health.ServerReady, r.Now().Report.Server)
		assert.Equal(t, health.Unknown, r.Now().Report.OnDemand)
		s.SetServingStatus("B", statusNotServing)
		synctest.Wait()
		assert.Equal(t, map[string]health.ModelState{"B": health.ModelUnavailable}, r.States())
		assert.Equal(t, health.No, r.Now().Report.OnDemand, "a server that knows models by name loads none for a call")
	})
}

func TestModelsComeAndGo(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, models := newServer(), &inUse{names: []string{"A", "", "B"}}
		s.SetServingStatus("A", statusServing)
		s.SetServingStatus("C", statusServing)
		r, _ := start(t, s, models)
		assert.Equal(t, map[string]health.ModelState{"A": health.ModelReady}, r.States())
		models.set("C", "B")
		time.Sleep(interval)
		synctest.Wait()
		assert.Equal(t, map[string]health.ModelState{"C": health.ModelReady}, r.States())
		names, opened := s.streams()
		assert.ElementsMatch(t, []string{"B", "C"}, names)
		assert.Equal(t, 3, opened, "B's stayed")
		s.SetServingStatus("C", healthpb.HealthCheckResponse_SERVICE_UNKNOWN)
		synctest.Wait()
		assert.Equal(t, map[string]health.ModelState{"C": health.ModelAbsent}, r.States())
		models.set("A", "B")
		time.Sleep(interval)
		synctest.Wait()
		assert.Equal(t, map[string]health.ModelState{"A": health.ModelReady}, r.States())
	})
}

func TestFewModelsAreWatchedOfAServerThatKnowsNone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newServer()
		r, _ := start(t, s, &inUse{names: numbered("m", 100)})
		for range 30 {
			names, _ := s.streams()
			require.LessOrEqual(t, len(names), maxUnknown)
			time.Sleep(interval)
			synctest.Wait()
		}
		_, opened := s.streams()
		assert.Equal(t, 100, opened, "each name has had its turn, once")
		assert.Empty(t, r.States())
	})
}

func TestTheNamesThatAServerKnowsAreFound(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newServer()
		for i := 30; i < 40; i++ {
			s.SetServingStatus(fmt.Sprint("m", i), statusServing)
		}
		models := &inUse{names: numbered("m", 50)}
		r, _ := start(t, s, models)
		time.Sleep(10 * interval)
		synctest.Wait()
		names, _ := s.streams()
		assert.Len(t, names, 50, "those that had made room are watched again")
		want := map[string]health.ModelState{}
		for _, name := range models.get()[30:40] {
			want[name] = health.ModelReady
		}
		assert.Equal(t, want, r.States())
	})
}

func TestModelWatchesAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newServer()
		models := &inUse{names: numbered("m", 300)}
		for _, name := range models.get() {
			s.SetServingStatus(name, statusServing)
		}
		r, _ := start(t, s, models)
		for range 10 {
			names, _ := s.streams()
			require.LessOrEqual(t, len(names), maxModels)
			time.Sleep(interval)
			synctest.Wait()
		}
		assert.Len(t, r.States(), maxModels)
		_, opened := s.streams()
		assert.Equal(t, maxModels, opened, "a model that is known keeps its place")
	})
}

// ending is a health service whose streams for the model A end with an error at once, or after they have said that it serves.
type ending struct {
	*healthServer
	speaks bool
	mu     sync.Mutex
	err    error
}

func (s *ending) set(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *ending) Watch(r *healthpb.HealthCheckRequest, stream watchStream) error {
	s.mu.Lock()
	err := s.err
	s.mu.Unlock()
	if r.GetService() != "A" || err == nil {
		return s.healthServer.Watch(r, stream)
	}
	s.add(r.GetService(), 1)
	defer s.add(r.GetService(), -1)
	if s.speaks {
		if err := stream.Send(&healthpb.HealthCheckResponse{Status: statusServing}); err != nil {
			return err
		}
	}
	return err
}

func TestAModelsStreamThatFailsIsOpenedAgainLater(t *testing.T) {
	others := map[string]health.ModelState{"B": health.ModelReady}
	failed, notFound := status.Error(codes.Internal, "bug"), status.Error(codes.NotFound, "A")
	for name, c := range map[string]struct {
		speaks bool
		err    error
		want   map[string]health.ModelState
	}{
		"failed":               {false, failed, others},
		"not found":            {false, notFound, others},
		"SERVING, then failed": {true, failed, others},
		"SERVING, then not found": {true, notFound, map[string]health.ModelState{
			"A": health.ModelAbsent, "B": health.ModelReady,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				s := &ending{healthServer: newServer(), speaks: c.speaks, err: c.err}
				s.SetServingStatus("A", statusServing)
				s.SetServingStatus("B", statusServing)
				r, _ := start(t, s, &inUse{names: []string{"A", "B"}})
				time.Sleep(10 * time.Second)
				synctest.Wait()
				assert.Equal(t, c.want, r.States())
				_, opened := s.streams()
				assert.Less(t, opened, 8)
				s.set(nil)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				assert.Equal(t, map[string]health.ModelState{"A": health.ModelReady, "B": health.ModelReady}, r.States())
			})
		})
	}
}

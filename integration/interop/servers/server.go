package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/mlbalancer/mlbalancer/internal/oip"
)

// Server is one inference server. Its methods are for one goroutine at a time.
type Server struct {
	// Name is the server's name.
	Name string
	// Addr is the address of its gRPC service, the same after a restart.
	Addr string
	// Service asks this server, over a connection of its own.
	Service oip.GRPCInferenceServiceClient

	kind    *Kind
	env     environment
	dir     string // absolute; belongs to the server
	models  []Model
	http    int // ports
	grpc    int
	metrics int
	conn    *grpc.ClientConn
	process *process // nil while it is not running
}

func newServer(env environment, k *Kind, name, dir string, models []Model) (*Server, error) {
	for _, m := range models {
		switch loads := m.Later || m.Broken || m.Loads > 0; {
		case loads && k.write == nil:
			return nil, fmt.Errorf("model %s: %s has no models that load", m.Name, k)
		case m.Broken && !m.Later:
			return nil, fmt.Errorf("model %s is broken: it must be for Later, else the server does not start", m.Name)
		}
	}
	s := &Server{Name: name, kind: k, env: env, dir: dir, models: models}
	for _, port := range []*int{&s.http, &s.grpc, &s.metrics} {
		var err error
		if *port, err = freePort(); err != nil {
			return nil, err
		}
	}
	s.Addr = loopback(s.grpc)
	var err error
	s.conn, err = grpc.NewClient("passthrough:///"+s.Addr,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: poll, Multiplier: 1, MaxDelay: poll},
			MinConnectTimeout: time.Second,
		}))
	if err != nil {
		return nil, err
	}
	s.Service = oip.NewGRPCInferenceServiceClient(s.conn)
	return s, nil
}

const (
	// poll is how often a server that starts is looked at.
	poll = 50 * time.Millisecond
	// starts is how often a server that exits at once is started.
	starts = 3
	// exitLimit is how long a server may take to exit when it is asked to.
	exitLimit = 30 * time.Second
)

// repository returns the folder that the server takes its models from.
func (s *Server) repository() string { return filepath.Join(s.dir, "models") }

// Start starts the server, which must not be running, and returns when its models answer: those that are not for Later. A server
// that exits before that, as Triton does now and then when its machine is busy, is started again.
func (s *Server) Start(ctx context.Context) error {
	if s.process != nil {
		return fmt.Errorf("%s is running", s.Name)
	}
	var err error
	for range starts {
		if err = s.start(ctx); !errors.Is(err, errExited) {
			break
		}
		s.process = nil
	}
	if err != nil {
		return fmt.Errorf("starting %s: %w; it says:\n%s", s.Name, err, s.Log(20))
	}
	return nil
}

var errExited = errors.New("it exited")

func (s *Server) start(ctx context.Context) error {
	if err := os.RemoveAll(s.repository()); err != nil {
		return err
	}
	if err := s.write(false); err != nil {
		return err
	}
	cmd, err := s.kind.command(s.env, s)
	if err != nil {
		return err
	}
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Dir = s.dir
	if s.process, err = start(cmd, s.shm(), log); err != nil {
		return err
	}
	if err := s.await(ctx); err != nil {
		return err
	}
	return s.write(true)
}

// shm returns how the names of the server's shared memory begin, which are the machine's and must be unique.
func (s *Server) shm() string { return "mlbalancer-" + filepath.Base(s.dir) + "-" }

// write writes the models that are, or are not, for later.
func (s *Server) write(later bool) error {
	for _, m := range s.models {
		if m.Later != later || s.kind.write == nil {
			continue
		}
		if err := s.kind.write(filepath.Join(s.repository(), m.Name), m); err != nil {
			return err
		}
	}
	return nil
}

// await waits until the models that are not for later are ready.
func (s *Server) await(ctx context.Context) error {
	t := time.NewTicker(poll)
	defer t.Stop()
	for _, m := range s.models {
		for !m.Later && !s.Ready(ctx, m.Name) {
			select {
			case <-ctx.Done():
				return fmt.Errorf("model %s is not ready: %w", m.Name, ctx.Err())
			case <-s.process.exited:
				return errExited
			case <-t.C:
			}
		}
	}
	return nil
}

// Ready reports whether the server says that a model is ready. A server that does not answer within a second does not say so.
func (s *Server) Ready(ctx context.Context, model string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	r, err := s.Service.ModelReady(ctx, &oip.ModelReadyRequest{Name: model}, grpc.WaitForReady(true))
	return err == nil && r.Ready
}

// Load has the server load a model, and returns when that is done.
func (s *Server) Load(ctx context.Context, model string) error {
	_, err := s.Service.RepositoryModelLoad(ctx, &oip.RepositoryModelLoadRequest{ModelName: model})
	return err
}

// Unload has the server drop a model, and returns when that is done or, on Triton, begun.
func (s *Server) Unload(ctx context.Context, model string) error { return s.kind.unload(ctx, s, model) }

func unload(ctx context.Context, s *Server, model string) error {
	_, err := s.Service.RepositoryModelUnload(ctx, &oip.RepositoryModelUnloadRequest{ModelName: model})
	return err
}

// Stop asks the server to exit, as Kubernetes does, and returns when it has.
func (s *Server) Stop(ctx context.Context) error {
	if s.process == nil {
		return fmt.Errorf("%s is not running", s.Name)
	}
	ctx, cancel := context.WithTimeout(ctx, exitLimit)
	defer cancel()
	if err := s.process.terminate(); err != nil {
		return fmt.Errorf("stopping %s: %w", s.Name, err)
	}
	select {
	case <-ctx.Done():
		return fmt.Errorf("stopping %s: %w; it says:\n%s", s.Name, ctx.Err(), s.Log(20))
	case <-s.process.exited:
	}
	s.process = nil
	return nil
}

// Restart stops the server and starts it again.
func (s *Server) Restart(ctx context.Context) error {
	if err := s.Stop(ctx); err != nil {
		return err
	}
	return s.Start(ctx)
}

// Kill ends the server and all that it started at once. It does nothing if the server is not running.
func (s *Server) Kill() {
	if s.process == nil {
		return
	}
	s.process.kill()
	<-s.process.exited
	s.process = nil
}

// Close kills the server and removes what it wrote.
func (s *Server) Close() {
	s.Kill()
	_ = s.conn.Close()
	_ = os.RemoveAll(s.dir)
}

func (s *Server) logFile() string { return filepath.Join(s.dir, "log") }

// Log returns the last lines, at most n, of what the server has written since it was made; tables are left out.
func (s *Server) Log(n int) string {
	text, err := os.ReadFile(s.logFile())
	if err != nil {
		return err.Error()
	}
	lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(string(text)), "\n"), func(line string) bool {
		return line == "" || strings.HasPrefix(line, "|") || strings.HasPrefix(line, "+")
	})
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

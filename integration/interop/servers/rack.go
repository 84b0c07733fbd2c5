package servers

import (
	"context"
	"os"
	"path/filepath"
	"sync"
)

// Rack is a folder that servers are installed into and run in. It is safe for concurrent use.
type Rack struct {
	dir string

	mu           sync.Mutex
	environments map[*Kind]environment // that are installed
}

// NewRack returns the rack in a folder, which is made when something is installed. What earlier runs installed there is used
// again.
func NewRack(dir string) (*Rack, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	return &Rack{dir: dir, environments: map[*Kind]environment{}}, nil
}

// Install makes sure that a kind of server is there. That takes up to a minute the first time, needs Python on PATH and fetches
// packages with pip; the error says what is missing.
func (r *Rack) Install(ctx context.Context, k *Kind) error {
	_, err := r.environment(ctx, k)
	return err
}

func (r *Rack) environment(ctx context.Context, k *Kind) (environment, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.environments[k]; ok {
		return e, nil
	}
	e, err := install(ctx, filepath.Join(r.dir, "python"), k)
	if err == nil {
		r.environments[k] = e
	}
	return e, err
}

// Start installs what it takes, starts a server of a kind, and returns it when all its models answer. Names are the caller's to
// choose; they are part of file names. The server must be closed.
func (r *Rack) Start(ctx context.Context, k *Kind, name string, models ...Model) (*Server, error) {
	env, err := r.environment(ctx, k)
	if err != nil {
		return nil, err
	}
	runs := filepath.Join(r.dir, "run")
	if err := os.MkdirAll(runs, 0o755); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(runs, k.name+"-"+name+"-")
	if err != nil {
		return nil, err
	}
	s, err := newServer(env, k, name, dir, models)
	if err != nil {
		return nil, err
	}
	if err := s.Start(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

package rig

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/mlbalancer/mlbalancer/internal/memconn"
)

// Backend is a server that takes any method, unary or streaming. It answers each message with its own name, after
// whatever its handler does. It also serves grpc.health.v1, and answers other questions about its health as Answers says.
type Backend struct {
	Name string

	fleet   *Fleet
	handler atomic.Pointer[Handler]
	memory  atomic.Pointer[Memory] // nil: it has any model

	mu       sync.Mutex
	listener *memconn.Listener // nil: connections are refused
	server   *grpc.Server
	health   *health.Server
	silent   bool // connections are neither accepted nor refused
	rude     bool // connections are accepted and closed

	gate gate // shut while the server is frozen
	desk desk

	accepted, open atomic.Int64
	started        atomic.Int64
	running        atomic.Int64
}

// Handler is what a server does with each message of a call before it answers; an error ends the call with that status.
type Handler func(ctx context.Context, method string) error

// Addr returns the server's first address; any other port reaches it too.
func (b *Backend) Addr() string { return b.Name + ":1" }

// AddrN returns another address of the server.
func (b *Backend) AddrN(n int) string { return fmt.Sprintf("%s:%d", b.Name, n) }

// Handle sets what the server does with calls from now on. Nil: it answers at once.
func (b *Backend) Handle(h Handler) {
	if h == nil {
		b.handler.Store(nil)
		return
	}
	b.handler.Store(&h)
}

// Takes makes the server take a time for each call.
func (b *Backend) Takes(d time.Duration) {
	b.Handle(func(ctx context.Context, _ string) error { return Wait(ctx, d) })
}

// Fails makes the server fail each call at once.
func (b *Backend) Fails(c codes.Code, text string) {
	b.Handle(func(context.Context, string) error { return status.Error(c, text) })
}

// Wait waits for a time, or until ctx is done and then returns the status that says so.
func Wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(max(1, d)) // see internal/memconn
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// Accepted returns how many connections the server has accepted so far.
func (b *Backend) Accepted() int { return int(b.accepted.Load()) }

// Open returns how many connections to the server are open, seen from the clients' side.
func (b *Backend) Open() int { return int(b.open.Load()) }

// Started returns how many calls have reached the server so far.
func (b *Backend) Started() int { return int(b.started.Load()) }

// Running returns how many calls the server is working on.
func (b *Backend) Running() int { return int(b.running.Load()) }

// Start makes the server listen. It has no effect while the server does.
func (b *Backend) Start() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.silent, b.rude = false, false
	if b.listener == nil {
		b.listenLocked()
	}
}

func (b *Backend) listenLocked() {
	b.listener = memconn.Listen(32 << 10)
	b.server = grpc.NewServer(grpc.UnknownServiceHandler(b.serve), grpc.ReadBufferSize(4<<10), grpc.WriteBufferSize(4<<10))
	b.health = health.NewServer()
	s, l := b.server, counting{b.listener, &b.accepted, &b.gate}
	go func() { _ = s.Serve(l) }() // it returns when the server is stopped
}

// Restart replaces the server by a new one, with no time between them: those who lose their connection find it at once.
func (b *Backend) Restart() {
	b.mu.Lock()
	s := b.server
	b.listenLocked()
	b.mu.Unlock()
	s.Stop()
}

// Stop closes the listener and all connections. Connections are refused from then on.
func (b *Backend) Stop() { b.stop((*grpc.Server).Stop) }

// GracefulStop closes the listener, tells clients to go away and waits for the calls under way. Connections are refused from the
// beginning.
func (b *Backend) GracefulStop() { b.stop((*grpc.Server).GracefulStop) }

// BlackHole stops the server and leaves those who connect without an answer.
func (b *Backend) BlackHole() {
	b.Stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.silent = true
}

// HangUp stops the server and has connections that are made from now on closed at once, as one that fails to authenticate them does.
func (b *Backend) HangUp() {
	b.Stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rude = true
}

func (b *Backend) stop(how func(*grpc.Server)) {
	b.mu.Lock()
	s, h := b.server, b.health
	b.listener, b.server, b.health, b.silent, b.rude = nil, nil, nil, false, false
	b.mu.Unlock()
	if s != nil {
		h.Shutdown() // ends watchers, which a graceful stop would wait for
		how(s)
	}
}

// dial connects to the server.
func (b *Backend) dial(ctx context.Context) (net.Conn, error) {
	b.mu.Lock()
	l, silent, rude := b.listener, b.silent, b.rude
	b.mu.Unlock()
	switch {
	case silent:
		<-ctx.Done()
		return nil, ctx.Err()
	case rude:
		near, far := net.Pipe()
		return near, far.Close()
	case l == nil:
		return nil, errRefused
	}
	c, err := l.DialContext(ctx)
	if err != nil {
		return nil, errRefused // it was closed meanwhile
	}
	return c, nil
}

// counting is a listener that counts.
type counting struct {
	net.Listener
	accepted *atomic.Int64
	gate     *gate
}

// Accept implements net.Listener.
func (l counting) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.accepted.Add(1)
	return &conn{Conn: &freezable{Conn: c, gate: l.gate, gone: make(chan struct{})}, remote: "client"}, nil
}

// serve is the handler of every method.
func (b *Backend) serve(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	if first, ok := probes[method]; ok {
		return b.answerProbe(method, first, stream)
	}
	b.started.Add(1)
	b.running.Add(1)
	defer b.running.Add(-1)
	err := b.answer(method, stream)
	b.fleet.answered(status.Code(err))
	return err
}

func (b *Backend) answer(method string, stream grpc.ServerStream) error {
	for {
		var msg emptypb.Empty
		switch err := stream.RecvMsg(&msg); {
		case err == io.EOF:
			return nil // the client has sent all it has to
		case err != nil:
			return status.Error(codes.Unavailable, "the connection is gone") // never OK: the call had no answer
		}
		if err := b.work(stream.Context(), method); err != nil {
			return err
		}
		if err := stream.SendMsg(wrapperspb.String(b.Name)); err != nil {
			return err
		}
	}
}

// work is what the server does with one message.
func (b *Backend) work(ctx context.Context, method string) error {
	work := func() error {
		if h := b.handler.Load(); h != nil {
			return (*h)(ctx, method)
		}
		return nil
	}
	if m, model := b.memory.Load(), Header(ctx, ModelHeader); m != nil && model != "" {
		return m.serve(ctx, model, work)
	}
	return work()
}

// Header returns a call's metadata value, as the server sees it, or "".
func Header(ctx context.Context, key string) string {
	if v := metadata.ValueFromIncomingContext(ctx, key); len(v) > 0 {
		return v[0]
	}
	return ""
}

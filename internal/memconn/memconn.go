// Package memconn is a network in memory, for tests in virtual time. It differs from grpc's bufconn in one thing: a connection has no timer
// until it has a deadline that lies ahead. bufconn makes two of no duration for each, and in a bubble of testing/synctest those run at once
// on the goroutine that makes them. Several that do so at the same moment share one context of the race detector, which crashes of it
// (Go 1.26, runtime.(*timer).modify and unlockAndRun).
package memconn

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// Listener is a [net.Listener] whose connections are made by DialContext. Its methods may be called from any goroutine.
type Listener struct {
	size      int
	incoming  chan net.Conn
	closed    chan struct{}
	closeOnce sync.Once
}

// Listen returns a listener. Each direction of its connections holds up to size bytes that have not been read yet; size must be positive.
func Listen(size int) *Listener {
	return &Listener{size: size, incoming: make(chan net.Conn), closed: make(chan struct{})}
}

// DialContext connects. It waits until the other end is accepted, ctx is done or the listener closes ([net.ErrClosed]).
func (l *Listener) DialContext(ctx context.Context) (net.Conn, error) {
	there, back := newPipe(l.size), newPipe(l.size)
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.closed:
		return nil, net.ErrClosed
	case l.incoming <- &conn{in: there, out: back}:
		return &conn{in: back, out: there}, nil
	}
}

// Accept implements [net.Listener].
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case <-l.closed:
		return nil, net.ErrClosed
	case c := <-l.incoming:
		return c, nil
	}
}

// Close implements [net.Listener]. Connections stay.
func (l *Listener) Close() error {
	l.closeOnce.Do(func() { close(l.closed) })
	return nil
}

// Addr implements [net.Listener].
func (l *Listener) Addr() net.Addr { return addr{} }

// conn is one end of a connection.
type conn struct{ in, out *pipe }

func (c *conn) Read(b []byte) (int, error)  { return c.in.read(b) }
func (c *conn) Write(b []byte) (int, error) { return c.out.write(b) }

// Close drops what has not been read here; the other end can still read what was written before.
func (c *conn) Close() error {
	c.in.closeReading()
	c.out.closeWriting()
	return nil
}

func (c *conn) SetDeadline(t time.Time) error {
	_ = c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

func (c *conn) SetReadDeadline(t time.Time) error  { return c.in.setDeadline(&c.in.reading, t) }
func (c *conn) SetWriteDeadline(t time.Time) error { return c.out.setDeadline(&c.out.writing, t) }

func (c *conn) LocalAddr() net.Addr  { return addr{} }
func (c *conn) RemoteAddr() net.Addr { return addr{} }

type addr struct{}

func (addr) Network() string { return "memconn" }
func (addr) String() string  { return "memconn" }

// pipe is one direction of a connection.
type pipe struct {
	size int

	mu               sync.Mutex
	changed          sync.Cond
	unread           bytes.Buffer // at most size bytes
	reading, writing side
}

// side is what one end does to a pipe.
type side struct {
	closed  bool
	late    bool        // its deadline has passed
	timeout *time.Timer // nil: no deadline lies ahead
}

func newPipe(size int) *pipe {
	p := &pipe{size: size}
	p.changed.L = &p.mu
	return p
}

func (p *pipe) read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.reading.closed:
			return 0, io.ErrClosedPipe
		case p.reading.late:
			return 0, os.ErrDeadlineExceeded
		case p.unread.Len() > 0 || len(b) == 0:
			n, _ := p.unread.Read(b)
			p.changed.Broadcast()
			return n, nil
		case p.writing.closed:
			return 0, io.EOF
		}
		p.changed.Wait()
	}
}

func (p *pipe) write(b []byte) (n int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch room := p.size - p.unread.Len(); {
		case p.writing.closed || p.reading.closed:
			return n, io.ErrClosedPipe
		case p.writing.late:
			return n, os.ErrDeadlineExceeded
		case n == len(b):
			return n, nil
		case room > 0:
			k, _ := p.unread.Write(b[n:min(len(b), n+room)])
			n += k
			p.changed.Broadcast()
		default:
			p.changed.Wait()
		}
	}
}

func (p *pipe) closeReading() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closeLocked(&p.reading)
	p.unread = bytes.Buffer{}
}

func (p *pipe) closeWriting() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closeLocked(&p.writing)
}

func (p *pipe) closeLocked(s *side) {
	s.closed = true
	s.stopLocked()
	p.changed.Broadcast()
}

// setDeadline sets the time after which one side's calls fail; zero: none.
func (p *pipe) setDeadline(s *side, t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.closed {
		return io.ErrClosedPipe
	}
	s.stopLocked()
	s.late = false
	switch left := time.Until(t); {
	case t.IsZero():
	case left <= 0:
		s.late = true
		p.changed.Broadcast()
	default:
		var timeout *time.Timer
		timeout = time.AfterFunc(left, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			if s.timeout == timeout {
				s.late = true
				p.changed.Broadcast()
			}
		})
		s.timeout = timeout
	}
	return nil
}

func (s *side) stopLocked() {
	if s.timeout != nil {
		s.timeout.Stop()
		s.timeout = nil
	}
}

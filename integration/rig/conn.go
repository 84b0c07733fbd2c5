package rig

import (
	"net"
	"sync"
	"time"
)

// conn is one end of a connection.
type conn struct {
	net.Conn
	remote  address
	onClose func() // may be nil

	mu     sync.Mutex
	closed bool
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed && c.onClose != nil {
		c.onClose()
	}
	c.closed = true
	_ = c.Conn.SetDeadline(time.Time{}) // in-memory connections that are closed live on until their deadlines have passed
	return c.Conn.Close()
}

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error { return c.open(t, c.Conn.SetDeadline) }

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error { return c.open(t, c.Conn.SetReadDeadline) }

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error { return c.open(t, c.Conn.SetWriteDeadline) }

// open calls set unless the connection is closed.
func (c *conn) open(t time.Time, set func(time.Time) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	return set(t)
}

type address string

// Network implements net.Addr.
func (address) Network() string { return "rig" }

// String implements net.Addr.
func (a address) String() string { return string(a) }

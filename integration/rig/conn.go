package rig

import (
	"net"
	"sync"
)

// conn is one end of a connection.
type conn struct {
	net.Conn
	remote  address
	onClose func() // may be nil

	once sync.Once
}

// Close implements net.Conn.
func (c *conn) Close() error {
	if c.onClose != nil {
		c.once.Do(c.onClose)
	}
	return c.Conn.Close()
}

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return c.remote }

type address string

// Network implements net.Addr.
func (address) Network() string { return "rig" }

// String implements net.Addr.
func (a address) String() string { return string(a) }

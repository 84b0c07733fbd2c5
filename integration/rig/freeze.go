package rig

import (
	"net"
	"sync"
)

// gate holds up those who pass it while it is shut.
type gate struct {
	mu   sync.Mutex
	open chan struct{} // closed when the gate opens; nil while it is open
}

// shut shuts the gate, or opens it.
func (g *gate) shut(yes bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case yes && g.open == nil:
		g.open = make(chan struct{})
	case !yes && g.open != nil:
		close(g.open)
		g.open = nil
	}
}

// pass waits until the gate is open, or gone is closed.
func (g *gate) pass(gone <-chan struct{}) {
	for {
		g.mu.Lock()
		open := g.open
		g.mu.Unlock()
		if open == nil {
			return
		}
		select {
		case <-open:
		case <-gone:
			return
		}
	}
}

// Freeze makes the server neither read nor write from now on, as a stopped process: its connections stay, and new ones are
// accepted, but nothing comes of them.
func (b *Backend) Freeze() { b.gate.shut(true) }

// Thaw lets the server go on.
func (b *Backend) Thaw() { b.gate.shut(false) }

// freezable is a server's end of a connection.
type freezable struct {
	net.Conn
	gate *gate
	once sync.Once
	gone chan struct{}
}

// Read implements net.Conn.
func (c *freezable) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.gate.pass(c.gone)
	return n, err
}

// Write implements net.Conn.
func (c *freezable) Write(p []byte) (int, error) {
	c.gate.pass(c.gone)
	return c.Conn.Write(p)
}

// Close implements net.Conn.
func (c *freezable) Close() error {
	c.once.Do(func() { close(c.gone) })
	return c.Conn.Close()
}

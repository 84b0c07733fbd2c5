package memconn_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/net/nettest"

	"github.com/mlbalancer/mlbalancer/internal/memconn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestConn has x/net ask whether these are connections as any other.
func TestConn(t *testing.T) {
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		c1, c2 = connect(t, memconn.Listen(1<<10))
		return c1, c2, func() { _, _ = c1.Close(), c2.Close() }, nil
	})
}

// connect makes one connection.
func connect(t *testing.T, l *memconn.Listener) (near, far net.Conn) {
	accepted := make(chan net.Conn)
	go func() {
		c, err := l.Accept()
		assert.NoError(t, err)
		accepted <- c
	}()
	near, err := l.DialContext(context.Background())
	require.NoError(t, err)
	return near, <-accepted
}

func TestListenerCloses(t *testing.T) {
	l := memconn.Listen(1)
	require.NoError(t, l.Close())
	require.NoError(t, l.Close())
	_, err := l.Accept()
	assert.ErrorIs(t, err, net.ErrClosed)
	_, err = l.DialContext(context.Background())
	assert.ErrorIs(t, err, net.ErrClosed)

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = memconn.Listen(1).DialContext(ctx)
	assert.ErrorIs(t, err, context.Canceled)
}

// TestManyAtOnce connects from many goroutines at the same moment of virtual time, which no timer may be run for.
func TestManyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all sync.WaitGroup
		for range 1000 {
			all.Go(func() {
				time.Sleep(time.Second)
				near, far := connect(t, memconn.Listen(8))
				defer near.Close()
				defer far.Close()
				assert.NoError(t, far.SetDeadline(time.Now().Add(time.Minute)))
				assert.NoError(t, far.SetDeadline(time.Time{}))
			})
		}
		all.Wait()
	})
}

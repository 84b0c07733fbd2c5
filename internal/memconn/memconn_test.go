package memconn_test

import (
	"context"
	"io"
	"net"
	"os"
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
		start := make(chan struct{})
		var all sync.WaitGroup
		for range 1000 {
			all.Go(func() {
				<-start
				near, far := connect(t, memconn.Listen(8))
				defer near.Close()
				defer far.Close()
				assert.NoError(t, far.SetDeadline(time.Now().Add(time.Minute)))
				assert.NoError(t, far.SetDeadline(time.Time{}))
			})
		}
		synctest.Wait()
		close(start)
		all.Wait()
	})
}

// What was written before one end closed can be read at the other, and nothing after it; that end cannot write any more.
func TestCloseDrains(t *testing.T) {
	near, far := connect(t, memconn.Listen(8))
	_, err := near.Write([]byte("last"))
	require.NoError(t, err)
	require.NoError(t, near.Close())
	require.NoError(t, near.Close())
	got, err := io.ReadAll(far)
	require.NoError(t, err)
	assert.Equal(t, "last", string(got))
	_, err = far.Write([]byte("x"))
	assert.ErrorIs(t, err, io.ErrClosedPipe)
	_, err = near.Read(make([]byte, 1))
	assert.ErrorIs(t, err, io.ErrClosedPipe)
	require.NoError(t, far.Close())
}

// Close wakes who waits at either end.
func TestCloseWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			far  bool // the other end closes
			call func(c net.Conn) (int, error)
			n    int
			err  error
		}{
			"own read":      {false, func(c net.Conn) (int, error) { return c.Read(make([]byte, 1)) }, 0, io.ErrClosedPipe},
			"own write":     {false, func(c net.Conn) (int, error) { return c.Write(make([]byte, 9)) }, 8, io.ErrClosedPipe},
			"other's read":  {true, func(c net.Conn) (int, error) { return c.Read(make([]byte, 1)) }, 0, io.EOF},
			"other's write": {true, func(c net.Conn) (int, error) { return c.Write(make([]byte, 9)) }, 8, io.ErrClosedPipe},
		} {
			near, far := connect(t, memconn.Listen(8))
			var all sync.WaitGroup
			all.Go(func() {
				n, err := c.call(near)
				assert.Equal(t, c.n, n, name)
				assert.Equal(t, c.err, err, name)
			})
			synctest.Wait()
			if c.far {
				assert.NoError(t, far.Close())
			} else {
				assert.NoError(t, near.Close())
			}
			all.Wait()
		}
	})
}

// A deadline that has passed is lifted by another, and one that is replaced does not pass.
func TestDeadlinesReplaceOneAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := connect(t, memconn.Listen(8))
		for _, d := range []time.Duration{-1, 0, time.Second} {
			require.NoError(t, near.SetReadDeadline(time.Now().Add(d)))
			_, err := near.Read(make([]byte, 1))
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		}
		require.NoError(t, near.SetReadDeadline(time.Now().Add(time.Second)))
		require.NoError(t, near.SetReadDeadline(time.Time{}))
		began := time.Now()
		time.AfterFunc(time.Minute, func() { _, _ = far.Write([]byte("x")) })
		_, err := near.Read(make([]byte, 1))
		require.NoError(t, err)
		assert.Equal(t, time.Minute, time.Since(began))
		require.NoError(t, near.Close())
		assert.ErrorIs(t, near.SetDeadline(time.Time{}), io.ErrClosedPipe)
	})
}

package servers

import (
	"errors"
	"net"
	"os"
	"strconv"
	"sync/atomic"
)

// Ports are taken from below those that connections go out from, so that none of these takes a server's while it restarts.
const (
	firstPort = 20_000
	lastPort  = 30_000
)

// nextPort is what the next port is counted from: processes that run at the same time begin at different places.
var nextPort = func() *atomic.Int64 {
	n := &atomic.Int64{}
	n.Store(int64(os.Getpid()) * 31)
	return n
}()

// freePort returns a port of the loopback interface that nobody listens on, another one each time.
func freePort() (int, error) {
	for range lastPort - firstPort {
		port := firstPort + int(nextPort.Add(1)%(lastPort-firstPort))
		l, err := net.Listen("tcp", loopback(port))
		if err != nil {
			continue
		}
		return port, l.Close()
	}
	return 0, errors.New("no port is free")
}

// loopback returns the address of a port.
func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

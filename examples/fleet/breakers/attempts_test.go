package breakers

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	gstats "google.golang.org/grpc/stats"
)

func TestAttempts(t *testing.T) {
	a := &attempts{addrs: []string{"127.0.0.1:1", "127.0.0.1:2"}}
	begin := func(port int) context.Context {
		ctx := a.TagRPC(t.Context(), &gstats.RPCTagInfo{})
		a.HandleRPC(ctx, &gstats.OutHeader{Client: true, RemoteAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}})
		return ctx
	}
	end := func(ctx context.Context, at time.Time, err error) {
		a.HandleRPC(ctx, &gstats.End{Client: true, EndTime: at, Error: err})
	}
	first, second, elsewhere := begin(2), begin(2), begin(3)
	sent := time.Now()
	end(first, sent.Add(time.Second), errors.New("no"))
	end(second, sent.Add(3*time.Second), nil)
	end(elsewhere, sent.Add(time.Minute), errors.New("no"))
	end(a.TagRPC(t.Context(), &gstats.RPCTagInfo{}), sent.Add(time.Minute), errors.New("never sent"))
	a.HandleRPC(t.Context(), &gstats.End{}) // of a call that began before

	assert.Equal(t, 0, a.inFlight(1, sent.Add(-time.Hour)))
	assert.Equal(t, 2, a.inFlight(1, sent))
	assert.Equal(t, 1, a.inFlight(1, sent.Add(2*time.Second)))
	assert.Equal(t, 0, a.inFlight(1, sent.Add(3*time.Second)))
	assert.Equal(t, 0, a.inFlight(0, sent))
	assert.Equal(t, 1, a.failed(1, sent))
	assert.Equal(t, 0, a.failed(1, sent.Add(time.Second)))
	assert.Equal(t, 0, a.failed(0, sent))
}

package servers

import (
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPortsAreFreeAndDiffer(t *testing.T) {
	t.Parallel()
	seen := map[int]bool{}
	for range 100 {
		port, err := freePort()
		require.NoError(t, err)
		assert.False(t, seen[port], "port %d twice", port)
		seen[port] = true
		assert.GreaterOrEqual(t, port, firstPort)
		assert.Less(t, port, lastPort)
	}
}

func TestTakenPortIsNotUsed(t *testing.T) {
	t.Parallel()
	port, err := freePort()
	require.NoError(t, err)
	l, err := net.Listen("tcp", loopback(port))
	require.NoError(t, err)
	defer l.Close()
	for range lastPort - firstPort {
		next, err := freePort()
		require.NoError(t, err)
		require.NotEqual(t, port, next)
	}
}

func TestModelsThatAServerCannotHave(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		kind  *Kind
		model Model
		want  string
	}{
		{KServe, Model{Name: "m", Later: true}, "model m: kserve has no models that load"},
		{KServe, Model{Name: "m", Loads: time.Second}, "model m: kserve has no models that load"},
		{Triton, Model{Name: "m", Broken: true}, "model m is broken: it must be for Later"},
	} {
		_, err := newServer(environment{}, tc.kind, "a", t.TempDir(), []Model{tc.model})
		assert.ErrorContains(t, err, tc.want)
	}
}

func TestLogIsTheEndWithoutTables(t *testing.T) {
	t.Parallel()
	s, err := newServer(environment{}, Triton, "a", t.TempDir(), nil)
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, os.WriteFile(s.logFile(), []byte("one\n+---+\n| x |\n+---+\n\ntwo\nthree\n"), 0o644))
	assert.Equal(t, "two\nthree", s.Log(2))
	assert.Equal(t, "one\ntwo\nthree", s.Log(9))
}

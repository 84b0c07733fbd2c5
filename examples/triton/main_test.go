package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"

	"github.com/mlbalancer/mlbalancer/internal/fleet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func target(t *testing.T) string {
	t.Helper()
	servers, err := fleet.Start(fleet.Config{Servers: 2, Models: []string{"sum"}, Scale: 1.0 / 1000, Seed: 1})
	require.NoError(t, err)
	t.Cleanup(servers.Close)
	return "mlb-static:///" + strings.Join(servers.Addrs(), ",")
}

func TestCallsStayOnOneServer(t *testing.T) {
	target := target(t)
	var out strings.Builder
	require.NoError(t, run(t.Context(), &out, target, "sum", 5))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 5, out.String())
	for _, line := range lines {
		assert.Contains(t, line, "input[0] = 1", "the simulated servers answer with what they are sent")
		server := strings.Fields(line)[3]
		assert.Contains(t, target, server)
		assert.Contains(t, lines[0], server, "the model moved:\n%s", out.String())
	}
}

func TestUnknownModelIsAnError(t *testing.T) {
	var out strings.Builder
	assert.ErrorContains(t, run(t.Context(), &out, target(t), "nope", 1), "'nope' is not found")
}

func TestFailedCallsAreShownAndCounted(t *testing.T) {
	servers, err := fleet.Start(fleet.Config{Servers: 1, Scale: 1.0 / 1000, Seed: 1})
	require.NoError(t, err)
	t.Cleanup(servers.Close)
	servers.Servers[0].Fail(codes.Internal, "out of memory\nat line 7", 1)
	var out strings.Builder
	err = run(t.Context(), &out, "mlb-static:///"+servers.Addrs()[0], "sum", 2)
	assert.ErrorContains(t, err, "2 of 2 calls failed")
	assert.Equal(t, 2, strings.Count(out.String(), "\n"), out.String())
	assert.Equal(t, 2, strings.Count(out.String(), servers.Addrs()[0]+"  Internal: out of memory"), out.String())
}

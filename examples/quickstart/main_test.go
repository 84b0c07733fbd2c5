package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestQuickstart(t *testing.T) {
	var out strings.Builder
	require.NoError(t, run(t.Context(), &out))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 12, "three calls of four models:\n%s", out.String())
	servedBy := map[string]string{}
	for _, line := range lines {
		fields := strings.Fields(line)
		require.Len(t, fields, 6, line)
		model, server, reason := fields[0], fields[2], fields[3]
		assert.Equal(t, "(home)", reason, line)
		if first, ok := servedBy[model]; ok {
			assert.Equal(t, first, server, "%s moved", model)
		}
		servedBy[model] = server
	}
	assert.Len(t, servedBy, 4, "models")
}

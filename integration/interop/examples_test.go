package interop

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mlbalancer/mlbalancer/integration/interop/servers"
)

func TestTritonExamples(t *testing.T)   { testExamples(t, servers.Triton, "triton", "kserve") }
func TestMLServerExamples(t *testing.T) { testExamples(t, servers.MLServer, "kserve") }
func TestKServeExamples(t *testing.T)   { testExamples(t, servers.KServe, "kserve") }
func TestSmokeExamples(t *testing.T)    { testExamples(t, servers.Triton, "triton", "kserve") }

// The examples are programs with the stubs that their users generate; they run unchanged.
func testExamples(t *testing.T, k *servers.Kind, programs ...string) {
	f := newFleet(t, k, modelAware)
	for _, program := range programs {
		cmd := exec.CommandContext(f.within(), "go", "run", "./"+program, "-target", f.target(), "-model", modelsOfB[0], "-n", "10")
		cmd.Dir = filepath.Join("..", "..", "examples")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", program, out)
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		require.Len(t, lines, 10, "%s: %s", program, out)
		for _, line := range lines {
			assert.Regexp(t, "("+f.a.Addr+"|"+f.b.Addr+")  y\\[0\\] = 1$", line, program)
		}
	}
}

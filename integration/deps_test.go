package integration

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/mlbalancer/mlbalancer"

// arrows says which packages of the module a package may import, each with all that is below it ("health" stands for health/standard
// too, unless it has a line of its own). What is not listed may import nothing of the module. The root package and what no library imports
// are not restrained.
var arrows = map[string][]string{
	"balancer":         {"picker", "health", "resolver", "breaker", "internal/methods", "internal/outcome", "internal/strictjson"},
	"picker":           {"breaker", "health"},
	"health":           {"health", "proto"},
	"retry":            {"picker", "internal/methods", "internal/outcome"},
	"hedge":            {"picker", "retry", "internal/methods", "internal/outcome"},
	"internal/outcome": {"picker"},
	"internal/sim":     {"picker", "breaker", "health"},

	"health/monitor/monitortest": {"health", "internal/memconn"}, // for tests
}

// free are the packages that may import whatever they like, and that no other may import.
var free = []string{"", "cmd", "examples", "integration", "internal/fleet", "internal/oip"}

// within reports whether pkg, relative to the module, is one of dirs or below one.
func within(pkg string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool { return pkg == d || d != "" && strings.HasPrefix(pkg, d+"/") })
}

// list runs go list in the module's root and returns the lines that it prints.
func list(t *testing.T, args ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list"}, args...)...)
	cmd.Dir = ".."
	out, err := cmd.Output()
	require.NoError(t, err)
	return strings.Fields(string(out))
}

// relative returns an import path below the module, or false if it is elsewhere.
func relative(path string) (string, bool) {
	if path == module {
		return "", true
	}
	return strings.CutPrefix(path, module+"/")
}

func TestImportsFollowTheArrows(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, line := range list(t, "-f", `{{.ImportPath}}:{{join .Imports ","}}`, "./...") {
		path, imports, _ := strings.Cut(line, ":")
		pkg, ok := relative(path)
		require.True(t, ok, path)
		seen++
		if within(pkg, free) {
			continue
		}
		dir := ""
		for d := range arrows {
			if len(d) > len(dir) && within(pkg, []string{d}) {
				dir = d
			}
		}
		for imported := range strings.SplitSeq(imports, ",") {
			if to, ok := relative(imported); ok {
				assert.True(t, within(to, arrows[dir]), "%s imports %s", pkg, to)
			}
		}
	}
	require.Greater(t, seen, 5)
}

// What decides runs without gRPC, as in a simulator: it reaches nothing but the standard library, itself and a hash function.
func TestTheCoreKnowsNoGRPC(t *testing.T) {
	t.Parallel()
	core := []string{"picker", "breaker", "health", "internal/sim"}
	all := list(t, "./...")
	for _, pkg := range core {
		if !slices.Contains(all, module+"/"+pkg) {
			continue
		}
		for _, dep := range list(t, "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "./"+pkg) {
			own, ok := relative(dep)
			assert.True(t, ok && slices.Contains(core, own) || dep == "github.com/cespare/xxhash/v2", "%s reaches %s", pkg, dep)
		}
	}
	require.Subset(t, all, []string{module + "/picker", module + "/breaker", module + "/health"})
}

// The definitions of a server's protocol would collide with the user's own, so no library may bring them along.
func TestNoLibraryRegistersAServersMessages(t *testing.T) {
	t.Parallel()
	var libraries []string
	for _, path := range list(t, "./...") {
		if pkg, _ := relative(path); pkg == "" || !within(pkg, free) {
			libraries = append(libraries, path)
		}
	}
	require.Subset(t, libraries, []string{module, module + "/balancer", module + "/health/oip"})
	for _, dep := range list(t, append([]string{"-deps"}, libraries...)...) {
		assert.NotEqual(t, module+"/internal/oip", dep)
		assert.NotEqual(t, module+"/internal/fleet", dep)
	}
}

func TestTheRootModuleRequiresLittle(t *testing.T) {
	t.Parallel()
	allowed := []string{
		"google.golang.org/grpc", "google.golang.org/protobuf", "github.com/cespare/xxhash/v2",
		"github.com/stretchr/testify", "go.uber.org/goleak",
		"google.golang.org/genproto/googleapis/rpc", // which grpc brings: the details of statuses
		"github.com/cncf/xds/go",                    // which grpc brings: the load reports of servers
	}
	cmd := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json")
	cmd.Dir = ".."
	out, err := cmd.Output()
	require.NoError(t, err)
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
		Replace []json.RawMessage
	}
	require.NoError(t, json.Unmarshal(out, &mod))
	require.NotEmpty(t, mod.Require)
	for _, r := range mod.Require {
		if !r.Indirect && !strings.HasPrefix(r.Path, "golang.org/x/") {
			assert.Contains(t, allowed, r.Path)
		}
	}
	assert.Empty(t, mod.Replace)
}

package servers

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
)

// python is an interpreter on this machine.
type python struct {
	path    string
	version string // "3.11"
	libDir  string // where its shared library may be
}

const describe = `import sys, sysconfig, venv, ensurepip
print("%d.%d" % sys.version_info[:2], sysconfig.get_config_var("LIBDIR"))`

// findPython returns the first interpreter on PATH whose version is one of some, and that can make environments.
func findPython(ctx context.Context, versions []string) (python, error) {
	names := []string{"python3"}
	for _, v := range versions {
		names = append(names, "python"+v)
	}
	var found []error
	for _, name := range names {
		path, err := exec.LookPath(name)
		if err != nil {
			found = append(found, err)
			continue
		}
		out, err := exec.CommandContext(ctx, path, "-c", describe).Output()
		if err != nil {
			found = append(found, fmt.Errorf("%s cannot make environments, it has no venv or no ensurepip: %w%s",
				path, err, stderrOf(err)))
			continue
		}
		version, libDir, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
		if slices.Contains(versions, version) {
			return python{path: path, version: version, libDir: libDir}, nil
		}
		found = append(found, fmt.Errorf("%s is version %s", path, version))
	}
	return python{}, fmt.Errorf("want Python %s with venv and pip on PATH, got: %w",
		strings.Join(versions, " or "), errors.Join(found...))
}

// stderrOf returns what a command that failed said, on a line of its own.
func stderrOf(err error) string {
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return "\n" + strings.TrimSpace(string(exit.Stderr))
	}
	return ""
}

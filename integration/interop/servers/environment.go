package servers

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// environment is a Python environment that a kind of server is installed in.
type environment struct {
	python
	dir string
}

// bin returns the path of a program of the environment.
func (e environment) bin(name string) string { return filepath.Join(e.dir, "bin", name) }

// packages returns the folder of the environment's packages.
func (e environment) packages() string {
	return filepath.Join(e.dir, "lib", "python"+e.version, "site-packages")
}

// complete is the file that says that an environment is whole.
const complete = "complete"

// install returns the environment of a kind under root. It is made unless there is one for this Python and these requirements. Of
// several processes that want it one makes it.
func install(ctx context.Context, root string, k *Kind) (environment, error) {
	py, err := findPython(ctx, k.pythons)
	if err != nil {
		return environment{}, fmt.Errorf("%s: %w", k, err)
	}
	requirements, err := files.ReadFile(k.name + "/requirements.txt")
	if err != nil {
		return environment{}, err
	}
	key := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s", py.path, py.version, requirements))
	e := environment{python: py, dir: filepath.Join(root, fmt.Sprintf("%s-%x", k, key[:6]))}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return environment{}, err
	}
	unlock, err := lock(e.dir + ".lock")
	if err != nil {
		return environment{}, err
	}
	defer unlock()
	done := filepath.Join(e.dir, complete)
	if _, err := os.Stat(done); !errors.Is(err, fs.ErrNotExist) {
		return e, err
	}
	fmt.Fprintf(os.Stderr, "installing %s into %s, once\n", k, e.dir)
	if err := e.make(ctx, requirements); err != nil {
		return environment{}, fmt.Errorf("installing %s: %w", k, err)
	}
	if k.finish != nil {
		if err := k.finish(e); err != nil {
			return environment{}, fmt.Errorf("installing %s: %w", k, err)
		}
	}
	return e, os.WriteFile(done, nil, 0o644)
}

// make makes the environment anew, and installs packages into it: exactly those that are listed.
func (e environment) make(ctx context.Context, requirements []byte) error {
	if err := os.RemoveAll(e.dir); err != nil {
		return err
	}
	if err := run(exec.CommandContext(ctx, e.path, "-m", "venv", e.dir)); err != nil {
		return err
	}
	list := filepath.Join(e.dir, "requirements.txt")
	if err := os.WriteFile(list, requirements, 0o644); err != nil {
		return err
	}
	return run(exec.CommandContext(ctx, e.bin("python"), "-m", "pip", "install",
		"--quiet", "--no-input", "--disable-pip-version-check", "--no-deps", "--requirement", list))
}

// run runs a command, whose error carries what the command said.
func run(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return nil
}

// lock waits for a file's lock.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", path, err), f.Close())
	}
	return func() { _ = f.Close() }, nil
}

package servers

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fakePython is a Python that makes environments of nothing, and logs what it is asked into $LOG.
const fakePython = `#!/bin/sh
echo "$*" >>"$LOG"
case "$2" in
-c) ;;
venv) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
pip) if [ -e "$LOG.fails" ]; then echo "no such package" >&2; exit 1; fi ;;
*) echo "3.11 /lib" ;;
esac
`

// withPython makes fakePython the only program on PATH beside the shell's, and returns what it was asked so far.
func withPython(t *testing.T, script string) (log string, asked func(what string) int) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "python3"), []byte(script), 0o755))
	log = filepath.Join(dir, "log")
	t.Setenv("LOG", log)
	t.Setenv("PATH", dir+":/bin:/usr/bin")
	return log, func(what string) int {
		text, err := os.ReadFile(log)
		require.NoError(t, err)
		return strings.Count(string(text), what)
	}
}

func TestInstallOnce(t *testing.T) {
	_, asked := withPython(t, fakePython)
	root := t.TempDir()
	kind := &Kind{name: "mlserver", pythons: []string{"3.11"}}

	first, err := install(context.Background(), root, kind)
	require.NoError(t, err)
	assert.FileExists(t, first.bin("python"))
	again, err := install(context.Background(), root, kind)
	require.NoError(t, err)
	assert.Equal(t, first, again)
	assert.Equal(t, 1, asked("-m pip install"))

	other, err := install(context.Background(), root, &Kind{name: "kserve", pythons: []string{"3.11"}})
	require.NoError(t, err)
	assert.NotEqual(t, first.dir, other.dir)
	assert.Equal(t, 2, asked("-m pip install"))
}

func TestInstallThatFailsIsDoneAgain(t *testing.T) {
	log, asked := withPython(t, fakePython)
	root := t.TempDir()
	kind := &Kind{name: "mlserver", pythons: []string{"3.11"}}
	require.NoError(t, os.WriteFile(log+".fails", nil, 0o644))
	_, err := install(context.Background(), root, kind)
	require.ErrorContains(t, err, "installing mlserver")
	require.ErrorContains(t, err, "no such package")
	require.NoError(t, os.Remove(log+".fails"))
	_, err = install(context.Background(), root, kind)
	require.NoError(t, err)
	assert.Equal(t, 2, asked("-m venv"))
}

func TestPythonThatWillNotDo(t *testing.T) {
	kind := &Kind{name: "mlserver", pythons: []string{"3.41", "3.42"}}
	for name, tc := range map[string]struct{ script, want string }{
		"too old": {"#!/bin/sh\necho 3.9 /lib\n", "is version 3.9"},
		"no venv": {"#!/bin/sh\necho 'No module named venv' >&2; exit 1\n", "No module named venv"},
	} {
		t.Run(name, func(t *testing.T) {
			withPython(t, tc.script)
			_, err := install(context.Background(), t.TempDir(), kind)
			assert.ErrorContains(t, err, "mlserver: want Python 3.41 or 3.42 with venv and pip on PATH")
			assert.ErrorContains(t, err, tc.want)
		})
	}
	t.Run("none", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		_, err := install(context.Background(), t.TempDir(), kind)
		assert.ErrorContains(t, err, `"python3": executable file not found`)
	})
}

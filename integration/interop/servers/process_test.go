package servers

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// family starts a process that has a child, and returns the child's id.
func family(t *testing.T, shm string) (p *process, child int) {
	t.Helper()
	said := filepath.Join(t.TempDir(), "said")
	f, err := os.Create(said)
	require.NoError(t, err)
	defer f.Close()
	p, err = start(exec.Command("/bin/sh", "-c", "sleep 1000 & echo $!; wait"), shm, f)
	require.NoError(t, err)
	t.Cleanup(func() {
		p.kill()
		<-p.exited
	})
	require.Eventually(t, func() bool {
		text, _ := os.ReadFile(said)
		child, err = strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil
	}, 10*time.Second, time.Millisecond)
	return p, child
}

// ended reports whether a process has ended, though nobody may have noticed yet.
func ended(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	_, state, _ := strings.Cut(string(text), ") ")
	return err != nil || strings.HasPrefix(state, "Z")
}

func sharedMemory(t *testing.T) (prefix, path string) {
	t.Helper()
	f, err := os.CreateTemp(shmDir, "mlbalancer-test-*-1")
	require.NoError(t, err)
	require.NoError(t, f.Close())
	t.Cleanup(func() { _ = os.Remove(f.Name()) })
	return strings.TrimSuffix(filepath.Base(f.Name()), "1"), f.Name()
}

func TestKilledProcessLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	prefix, path := sharedMemory(t)
	p, child := family(t, prefix)
	p.kill()
	<-p.exited
	assert.Eventually(t, func() bool { return ended(child) }, 10*time.Second, time.Millisecond)
	assert.NoFileExists(t, path)
	assert.NotNil(t, p.keeper.cmd.ProcessState, "the keeper is still there")
}

func TestProcessThatExitsLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	prefix, path := sharedMemory(t)
	p, child := family(t, prefix)
	require.NoError(t, p.terminate())
	<-p.exited
	assert.Eventually(t, func() bool { return ended(child) }, 10*time.Second, time.Millisecond)
	assert.NoFileExists(t, path)
}

// When this process dies its end of the keeper's pipe is closed.
func TestKeeperCleansUpAfterUs(t *testing.T) {
	t.Parallel()
	prefix, path := sharedMemory(t)
	p, child := family(t, "")
	k, err := keep(p.cmd.Process.Pid, prefix)
	require.NoError(t, err)
	require.NoError(t, k.alive.Close())
	<-p.exited
	assert.Eventually(t, func() bool { return ended(child) }, 10*time.Second, time.Millisecond)
	require.NoError(t, k.cmd.Wait())
	assert.NoFileExists(t, path)
}

package servers

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
)

// process is a command that runs in a process group of its own.
type process struct {
	cmd    *exec.Cmd
	shm    string // how the names of its shared memory begin; empty if it has none
	keeper *keeper
	exited chan struct{} // closed when it has exited and nothing of it is left
}

// start starts a command, whose output goes to a file.
func start(cmd *exec.Cmd, shm string, output *os.File) (*process, error) {
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, shm: shm, exited: make(chan struct{})}
	var err error
	if p.keeper, err = keep(cmd.Process.Pid, shm); err != nil {
		p.kill()
		_ = cmd.Wait()
		return nil, err
	}
	go p.reap()
	return p, nil
}

// reap waits until the command has exited, and removes what it left behind.
func (p *process) reap() {
	defer close(p.exited)
	_ = p.cmd.Wait() // how it ended is in its output
	p.kill()
	if p.shm != "" {
		left, _ := filepath.Glob(shmDir + p.shm + "*")
		for _, path := range left {
			_ = os.Remove(path)
		}
	}
	p.keeper.dismiss()
}

// terminate asks the process itself, not those that it started, to exit.
func (p *process) terminate() error { return p.cmd.Process.Signal(syscall.SIGTERM) }

// kill ends the whole group at once.
func (p *process) kill() { _ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) }

const shmDir = "/dev/shm/"

// keeper is a process that outlives this one for a moment: it removes what a group left behind that nobody looks after any more.
type keeper struct {
	cmd   *exec.Cmd
	alive io.Closer // the keeper reads it to its end, which comes with this process's
}

const keepScript = `cat >/dev/null; kill -s KILL -- "-$1"; if [ -n "$2" ]; then sleep 1; rm -f "$2"*; fi`

// keep has a process group and its shared memory removed when this process ends without having done so.
func keep(group int, shm string) (*keeper, error) {
	if shm != "" {
		shm = shmDir + shm
	}
	cmd := exec.Command("/bin/sh", "-c", keepScript, "keeper", strconv.Itoa(group), shm)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	alive, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &keeper{cmd: cmd, alive: alive}, nil
}

// dismiss ends the keeper, who has nothing to do any more.
func (k *keeper) dismiss() {
	_ = syscall.Kill(-k.cmd.Process.Pid, syscall.SIGKILL)
	_ = k.cmd.Wait()
	_ = k.alive.Close()
}

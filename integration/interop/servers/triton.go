package servers

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Triton is the Triton Inference Server, of the package that carries its binary and its Python backend. It exits at most 5 s
// after it is asked to, and some. Its readiness is strict, as it is by default: while a model loads, and after one failed to, the
// server says that it is not ready.
var Triton = &Kind{
	name:    "triton",
	pythons: []string{"3.10", "3.11", "3.12"}, // the backend has stubs for these, and numpy 1 wheels
	finish:  finishTriton,
	write:   writeTriton,
	command: commandTriton,
	unload:  unload,
}

// tritonRoot returns the folder of the server in the package.
func tritonRoot(e environment) string { return filepath.Join(e.packages(), "pytriton", "tritonserver") }

// tritonBackends returns the folder of the server's backends.
func tritonBackends(e environment) string { return filepath.Join(e.dir, "backends") }

const tritonStub = "triton_python_backend_stub"

// finishTriton makes a folder of the Python backend with the stub for our version of Python, which the backend wants beside
// itself.
func finishTriton(e environment) error {
	backend := filepath.Join(tritonBackends(e), "python")
	if err := os.CopyFS(backend, os.DirFS(filepath.Join(tritonRoot(e), "backends", "python"))); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(tritonRoot(e), "python_backend_stubs", e.version, tritonStub))
	if err != nil {
		return err
	}
	stub := filepath.Join(backend, tritonStub)
	if err := os.WriteFile(stub, text, 0o755); err != nil {
		return err
	}
	// Without arguments it says how it is used, if it can be run at all.
	cmd := exec.Command(stub)
	cmd.Env = tritonEnv(e)
	if out, _ := cmd.CombinedOutput(); !bytes.Contains(out, []byte("arguments")) {
		return fmt.Errorf("the Python backend does not run, the shared library of Python %s may be missing: %s", e.version, out)
	}
	return nil
}

func tritonEnv(e environment) []string {
	return append(os.Environ(),
		"PATH="+filepath.Join(e.dir, "bin")+":"+os.Getenv("PATH"),
		"LD_LIBRARY_PATH="+filepath.Join(e.packages(), "nvidia_pytriton.libs")+":"+e.libDir,
		"PYTHONPATH="+e.packages(),
		"PYTHONDONTWRITEBYTECODE=1",
		"CUDA_VISIBLE_DEVICES=")
}

const tritonConfig = `backend: "python"
max_batch_size: 64
dynamic_batching { }
input [ { name: "x" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ -1 ] } ]
instance_group [ { kind: KIND_CPU count: 1 } ]
parameters { key: "takes_s" value { string_value: "%g" } }
parameters { key: "loads_s" value { string_value: "%g" } }
`

func writeTriton(folder string, m Model) error {
	source := "triton/model.py"
	if m.Broken {
		source = "triton/broken.py"
	}
	code, err := files.ReadFile(source)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(folder, "1"), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "1", "model.py"), code, 0o644); err != nil {
		return err
	}
	config := fmt.Appendf(nil, tritonConfig, m.Takes.Seconds(), m.Loads.Seconds())
	return os.WriteFile(filepath.Join(folder, "config.pbtxt"), config, 0o644)
}

func commandTriton(e environment, s *Server) (*exec.Cmd, error) {
	cmd := exec.Command(filepath.Join(tritonRoot(e), "bin", "tritonserver"),
		"--id="+s.Name,
		"--model-repository="+s.repository(),
		"--backend-directory="+tritonBackends(e),
		"--http-address=127.0.0.1", "--http-port="+strconv.Itoa(s.http),
		"--grpc-address=127.0.0.1", "--grpc-port="+strconv.Itoa(s.grpc),
		"--metrics-address=127.0.0.1", "--metrics-port="+strconv.Itoa(s.metrics),
		"--model-control-mode=explicit", "--load-model=*",
		"--strict-readiness=true",
		"--exit-timeout-secs=5",
		"--backend-config=python,shm-region-prefix-name="+s.shm(),
	)
	cmd.Env = tritonEnv(e)
	return cmd, nil
}

// KillModel kills the processes that a Triton runs a model in, all instances of it, and leaves the server alone.
func (s *Server) KillModel(model string) error {
	code := filepath.Join(s.repository(), model, "1", "model.py")
	found, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	killed := 0
	for _, path := range found {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		args := strings.Split(string(text), "\x00")
		if len(args) < 2 || filepath.Base(args[0]) != tritonStub || args[1] != code {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			return err
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			return fmt.Errorf("killing model %s of %s: %w", model, s.Name, err)
		}
		killed++
	}
	if killed == 0 {
		return fmt.Errorf("%s runs no process for model %s", s.Name, model)
	}
	return nil
}

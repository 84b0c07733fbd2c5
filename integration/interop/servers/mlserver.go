package servers

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// MLServer is Seldon's MLServer, with models that run in the server's own process.
var MLServer = &Kind{
	name:    "mlserver",
	pythons: []string{"3.11", "3.12"},
	write:   writeMLServer,
	command: commandMLServer,
	unload:  unload,
}

// modelSettings is the part of MLServer's model-settings.json that we use.
type modelSettings struct {
	Name           string     `json:"name"`
	Implementation string     `json:"implementation"`
	Inputs         []tensor   `json:"inputs"`
	Outputs        []tensor   `json:"outputs"`
	Parameters     parameters `json:"parameters"`
}

type tensor struct {
	Name     string `json:"name"`
	Datatype string `json:"datatype"`
	Shape    []int  `json:"shape"`
}

type parameters struct {
	Extra extra `json:"extra"`
}

// extra is what runtime.py reads.
type extra struct {
	TakesS float64 `json:"takes_s"`
	LoadsS float64 `json:"loads_s"`
	Broken bool    `json:"broken"`
}

func writeMLServer(folder string, m Model) error {
	settings, err := json.Marshal(modelSettings{
		Name:           m.Name,
		Implementation: "runtime.Echo",
		Inputs:         []tensor{{Name: "x", Datatype: "FP32", Shape: []int{-1}}},
		Outputs:        []tensor{{Name: "y", Datatype: "FP32", Shape: []int{-1}}},
		Parameters:     parameters{extra{TakesS: m.Takes.Seconds(), LoadsS: m.Loads.Seconds(), Broken: m.Broken}},
	})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "model-settings.json"), settings, 0o644)
}

func commandMLServer(e environment, s *Server) (*exec.Cmd, error) {
	code, err := files.ReadFile("mlserver/runtime.py")
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(s.dir, "runtime.py"), code, 0o644); err != nil {
		return nil, err
	}
	cmd := exec.Command(e.bin("mlserver"), "start", s.repository())
	cmd.Env = append(os.Environ(),
		"PYTHONPATH="+s.dir,
		"PYTHONDONTWRITEBYTECODE=1",
		"MLSERVER_HOST=127.0.0.1",
		"MLSERVER_HTTP_PORT="+strconv.Itoa(s.http),
		"MLSERVER_GRPC_PORT="+strconv.Itoa(s.grpc),
		"MLSERVER_METRICS_PORT="+strconv.Itoa(s.metrics),
		"MLSERVER_METRICS_DIR="+filepath.Join(s.dir, "metrics"),
		"MLSERVER_ENVIRONMENTS_DIR="+filepath.Join(s.dir, "environments"),
		"MLSERVER_PARALLEL_WORKERS=0",
		"MLSERVER_DEBUG=false")
	return cmd, nil
}

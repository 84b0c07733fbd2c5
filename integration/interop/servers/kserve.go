package servers

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer/internal/oip"
)

// KServe is KServe's Python model server. The one thing that is not as published is that it listens on loopback alone, for which
// it has no option.
var KServe = &Kind{
	name:    "kserve",
	pythons: []string{"3.11", "3.12"},
	command: commandKServe,
	unload:  unloadKServe,
}

func commandKServe(e environment, s *Server) (*exec.Cmd, error) {
	code, err := files.ReadFile("kserve/server.py")
	if err != nil {
		return nil, err
	}
	script := filepath.Join(s.dir, "server.py")
	if err := os.WriteFile(script, code, 0o644); err != nil {
		return nil, err
	}
	type model struct {
		Name   string  `json:"name"`
		TakesS float64 `json:"takes_s"`
	}
	var models []model
	for _, m := range s.models {
		models = append(models, model{m.Name, m.Takes.Seconds()})
	}
	list, err := json.Marshal(models)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(e.bin("python"), script, "--http_port", strconv.Itoa(s.http), "--grpc_port", strconv.Itoa(s.grpc))
	cmd.Env = append(os.Environ(), "MODELS="+string(list), "PYTHONDONTWRITEBYTECODE=1")
	return cmd, nil
}

// unloadKServe names the model in field 1, where KServe's protocol has it. The server drops the model and then fails to say so.
func unloadKServe(ctx context.Context, s *Server, model string) error {
	_, err := s.Service.RepositoryModelUnload(ctx, &oip.RepositoryModelUnloadRequest{RepositoryName: model})
	if status.Code(err) == codes.Internal && !s.Ready(ctx, model) {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("%s says that it dropped model %s, which it could not say before", s.Name, model)
	}
	return err
}

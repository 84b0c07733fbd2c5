package servers

import (
	"context"
	"embed"
	"os/exec"
	"time"
)

//go:embed triton mlserver kserve
var files embed.FS

// Kind is a kind of server. The kinds are [Triton], [MLServer] and [KServe].
type Kind struct {
	name string // also of its folder in files
	// pythons are the versions of Python that its packages can be had for.
	pythons []string
	// finish completes a fresh environment; nil if there is nothing to do.
	finish func(environment) error
	// write puts a model into the folder that the server takes its models from; nil if it takes them from its command.
	write func(folder string, m Model) error
	// command returns what starts the server s.
	command func(env environment, s *Server) (*exec.Cmd, error)
	// unload has the server drop a model.
	unload func(ctx context.Context, s *Server, model string) error
}

// String returns the kind's name: "triton", "mlserver" or "kserve".
func (k *Kind) String() string { return k.name }

// Model is a model that servers have. It takes one tensor, x, whose first dimension is that of batches, and answers with the same
// as y.
type Model struct {
	// Name is the model's name.
	Name string
	// Takes is how long a call takes. Calls run at the same time, on Triton in batches, one after the other.
	Takes time.Duration
	// Loads is how long it takes to load, on Triton and MLServer.
	Loads time.Duration
	// Later says that it is not loaded when the server starts. KServe has no such models.
	Later bool
	// Broken says that loading it fails; it must be Later.
	Broken bool
}

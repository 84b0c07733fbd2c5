package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
)

// Config describes a fleet. The zero value is a fleet of eight on-demand loaders in real time.
type Config struct {
	// Servers is how many there are; 0 means 8.
	Servers int
	// Workers is how many requests a server runs at a time; 0 means 4.
	Workers int
	// Slots is how many models a server's memory holds; 0 means 4.
	Slots int

	// Service is the mean time that a request takes on a worker when it does not say its own work (WorkParameter); 0 means 250 ms.
	// Models differ: each has its own mean around this one.
	Service time.Duration
	// ServiceCV is the coefficient of variation of the lognormal service time; 0 means 0.8, and less than 0 that every
	// request of every model takes exactly Service.
	ServiceCV float64
	// Load is the mean time to load a model; 0 means 5 s.
	Load time.Duration
	// LoadCV is the coefficient of variation of the lognormal load time; 0 means 0.15, and less than 0 that every load takes
	// exactly Load.
	LoadCV float64

	// Scale is how much wall-clock time a unit of model time takes, over 0 and up to 1; 0 means 1. 1.0/20 runs 20 model seconds in one.
	Scale float64
	// Seed makes the random draws repeatable: the same seed and order of arrivals give the same times.
	Seed uint64

	// Models are the models in the servers' repository. Empty means that every name but the empty one is there.
	Models []string
	// Explicit makes the servers load a model only when RepositoryModelLoad (or Preload) says so, as Triton does in explicit mode.
	// They then answer NOT_FOUND for a model they do not hold, never evict one by themselves, and are not ready while one loads.
	// Otherwise a request for a model that is not resident has it loaded and waits for it, as ModelMesh does.
	Explicit bool
	// NoWatch makes grpc.health.v1 what Triton makes of it: Check mirrors ServerReady whatever service it names, and there is
	// no Watch. Otherwise it answers as gRPC's standard health server does.
	NoWatch bool
	// ModelHealth makes grpc.health.v1 know each model as a service of its name: SERVING if it is resident, NOT_SERVING if it
	// once was or will be, unknown if it was never loaded. The empty name is the server, which serves until it drains. It
	// excludes NoWatch.
	ModelHealth bool
	// Signals are what the servers tell of themselves; the rest is UNIMPLEMENTED. 0 means Health, and OIP in explicit mode: who speaks Triton's statistics
	// is taken for a server that loads nothing by itself, which one that does had better not be.
	Signals Signals

	// InMemory makes the servers listen on in-memory pipes instead of loopback ports. They can be reached only through
	// Dialer and DialOptions.
	InMemory bool
	// ServerOptions are passed to every gRPC server.
	ServerOptions []grpc.ServerOption
}

// withDefaults returns the configuration with its zero fields filled in, or an error that names the first bad one.
func (c Config) withDefaults() (Config, error) {
	for _, f := range []struct {
		name  string
		value *int
		unset int
	}{{"Servers", &c.Servers, 8}, {"Workers", &c.Workers, 4}, {"Slots", &c.Slots, 4}} {
		if *f.value < 0 {
			return c, fmt.Errorf("fleet: %s is %d, want at least 1, or 0 for %d", f.name, *f.value, f.unset)
		}
		*f.value = cmp.Or(*f.value, f.unset)
	}
	for _, f := range []struct {
		name  string
		value *time.Duration
		unset time.Duration
	}{{"Service", &c.Service, 250 * time.Millisecond}, {"Load", &c.Load, 5 * time.Second}} {
		if *f.value < 0 {
			return c, fmt.Errorf("fleet: %s is %v, want more than 0, or 0 for %v", f.name, *f.value, f.unset)
		}
		*f.value = cmp.Or(*f.value, f.unset)
	}
	if !(c.Scale >= 0 && c.Scale <= 1) {
		return c, fmt.Errorf("fleet: Scale is %v, want more than 0 and at most 1, or 0 for 1", c.Scale)
	}
	c.Scale = cmp.Or(c.Scale, 1)
	c.ServiceCV = cmp.Or(c.ServiceCV, 0.8)
	c.LoadCV = cmp.Or(c.LoadCV, 0.15)
	switch {
	case c.Signals >= NoSignals<<1, c.Signals&NoSignals != 0 && c.Signals != NoSignals:
		return c, fmt.Errorf("fleet: Signals is %#x, want a set of Health, OIP, ORCA and GPUStats, or NoSignals alone",
			uint8(c.Signals))
	case c.NoWatch && c.ModelHealth:
		return c, errors.New("fleet: ModelHealth is true, want false with NoWatch")
	}
	if c.Signals == 0 {
		c.Signals = Health
		if c.Explicit {
			c.Signals |= OIP
		}
	}
	for i, m := range c.Models {
		if m == "" {
			return c, fmt.Errorf("fleet: Models[%d] is empty, want a name", i)
		}
	}
	return c, nil
}

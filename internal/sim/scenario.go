package sim

import (
	"fmt"
	"time"
)

// Scenario is a fleet, its traffic, and what goes wrong.
type Scenario struct {
	// ID is the name that the scenario is asked for by; About is a line that says what it is.
	ID, About string
	// Servers is how many servers there are at the start; from 1.
	Servers int
	// Slots is how many models fit into a server's memory; from 1.
	Slots int
	// Workers is how many calls a server works on at once; from 1.
	Workers int
	// Models is how many models there are, and Zipf how fast their popularity falls: with this power of the rank. A Trace has
	// its own.
	Models int
	Zipf   float64
	// Rho is the offered work over the fleet's capacity, loads excluded; above 0.
	Rho float64
	// Swing is by which share of its mean the rate of random arrivals is above it in one half of each SwingPeriod, and below it
	// in the other; from 0 to below 1. A SwingPeriod of 0 leaves the rate as it is.
	Swing       float64
	SwingPeriod time.Duration
	// Service is the mean work of a call, Load the mean time that it takes to load a model, Deadline how long callers wait.
	Service, Load, Deadline time.Duration
	// Clients is how many clients share the traffic; from 1.
	Clients int
	// Reports says what the clients learn of the servers.
	Reports Reports
	// Everywhere puts the models that fit into memory, the most popular first, into that of every server before the start.
	Everywhere bool
	// From and To bound the measured part, from the start of the run: calls that arrive in it count, and the loads that begin
	// from its start until the last of its calls has ended.
	From, To time.Duration
	// Changes are what goes wrong at From.
	Changes []Change
	// Flash is the share of the calls that the least popular model has from From on.
	Flash float64
	// SLO is the time within which answers are of use; 0 if that is not asked.
	SLO time.Duration
	// Trace has the arrivals; nil for random ones. NeedsTrace says that the scenario is nothing without one.
	Trace      *Trace
	NeedsTrace bool
}

// Change is something that happens to servers at the start of the measured part.
type Change struct {
	Kind ChangeKind
	// Count is how many servers it happens to.
	Count int
	// Factor is how many times as long a slow server takes.
	Factor float64
}

// ChangeKind is what happens.
type ChangeKind uint8

// The kinds of changes.
const (
	// Slow: calls and loads take Factor times as long.
	Slow ChangeKind = iota
	// BlackHole: the server fails every call after a millisecond.
	BlackHole
	// BrokenModel: the most popular model fails on the server that has served it most.
	BrokenModel
	// Join: servers come, with empty memory.
	Join
	// Leave: servers go, and finish what they have.
	Leave
)

// total is how many servers there ever are.
func (sc *Scenario) total() int {
	n := sc.Servers
	for _, c := range sc.Changes {
		if c.Kind == Join {
			n += c.Count
		}
	}
	return n
}

// shares returns the models' shares of the calls.
func (sc *Scenario) shares() []float64 {
	if sc.Trace != nil {
		return sc.Trace.shares()
	}
	return zipf(sc.Models, sc.Zipf)
}

// FieldError says which field of a scenario is wrong, what it holds and what it should hold.
type FieldError struct{ Field, Got, Want string }

// Error implements error.
func (e *FieldError) Error() string { return fmt.Sprintf("%s is %s, want %s", e.Field, e.Got, e.Want) }

// limits of what is simulated: beyond them a run takes hours, or all memory.
const (
	maxServers = 10_000
	maxModels  = 100_000
	maxClients = 10_000
	maxPairs   = 20_000_000 // of servers and models, and of servers and clients
)

// Validate returns a *FieldError for the first field that is out of range, or nil.
func (sc *Scenario) Validate() error {
	wrong := func(field string, got any, want string) error { return &FieldError{field, fmt.Sprint(got), want} }
	switch {
	case sc.Servers < 1 || sc.Servers > maxServers:
		return wrong("servers", sc.Servers, fmt.Sprintf("1 to %d", maxServers))
	case sc.Slots < 1:
		return wrong("slots", sc.Slots, "1 or more")
	case sc.Workers < 1:
		return wrong("workers", sc.Workers, "1 or more")
	case sc.NeedsTrace && sc.Trace == nil:
		return wrong("trace", "nothing", "the file of a trace: scenario "+sc.ID+" replays one")
	case sc.Trace == nil && (sc.Models < 1 || sc.Models > maxModels):
		return wrong("models", sc.Models, fmt.Sprintf("1 to %d", maxModels))
	case !(sc.Zipf >= 0 && sc.Zipf <= 10):
		return wrong("zipf", sc.Zipf, "0 to 10")
	case !(sc.Rho > 0 && sc.Rho <= 10):
		return wrong("rho", sc.Rho, "above 0, up to 10")
	case !(sc.Swing >= 0 && sc.Swing < 1):
		return wrong("swing", sc.Swing, "0 to below 1")
	case sc.SwingPeriod < 0:
		return wrong("swingPeriod", sc.SwingPeriod, "0 or more")
	case sc.Service <= 0:
		return wrong("service", sc.Service, "above 0")
	case sc.Load <= 0 || sc.Load > time.Hour:
		return wrong("load", sc.Load, "above 0, up to 1h")
	case sc.Deadline <= 0:
		return wrong("deadline", sc.Deadline, "above 0")
	case sc.From < 0 || sc.To <= sc.From:
		return wrong("to", sc.To, "after from, "+sc.From.String())
	case sc.Clients < 1 || sc.Clients > maxClients:
		return wrong("clients", sc.Clients, fmt.Sprintf("1 to %d", maxClients))
	case sc.total()*max(sc.Clients, len(sc.shares())) > maxPairs:
		return wrong("servers", sc.Servers, fmt.Sprintf("at most %d pairs with clients, or with models", maxPairs))
	}
	return sc.Reports.Validate()
}

package fleet

import (
	"time"

	"google.golang.org/grpc/codes"
)

// Stats are a server's counters. An inference call is a ModelInfer, or one request on a ModelStreamInfer.
// Calls = OK + all Errors + those that the server still holds.
type Stats struct {
	// Server is the server's name.
	Server string
	// Calls is how many inference calls came in, and OK how many of them were answered well.
	Calls, OK uint64
	// Errors is how many inference calls ended with each code. A call whose caller gave up ends with CANCELLED or
	// DEADLINE_EXCEEDED.
	Errors map[codes.Code]uint64
	// Hits is how many calls found their model resident, and ColdCalls how many had to wait for a load.
	Hits, ColdCalls uint64
	// ColdLoads is how many loads were begun for a call, and Loads how many were begun at all: those and explicit ones.
	ColdLoads, Loads uint64
	// Evictions is how many models were taken out of memory, for whatever reason but a stop.
	Evictions uint64
	// Busy is the time, in model time, that workers have spent on requests, summed over the workers.
	Busy time.Duration
	// Running, Queued and Waiting are the requests that are on a worker, in the run queue, and waiting for a load, now.
	Running, Queued, Waiting int
	// Resident are the models in memory now, in order of last use, the next to be evicted first.
	Resident []string
}

// EventKind is what happened to a model in a server's memory.
type EventKind uint8

const (
	// Loading means that a load began.
	Loading EventKind = iota
	// Loaded means that the model is resident from now on.
	Loaded
	// Evicted means that the model is no longer resident.
	Evicted
)

// String returns "loading", "loaded" or "evicted".
func (k EventKind) String() string { return [...]string{"loading", "loaded", "evicted"}[k] }

// Event is one change in a server's memory.
type Event struct {
	// Time is the wall-clock time of the change.
	Time time.Time
	// Server is the index of the server in Fleet.Servers.
	Server int
	// Model is the model's name.
	Model string
	// Kind is what happened.
	Kind EventKind
}

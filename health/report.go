package health

import "time"

// MaxSources bounds the number of sources, so that what each says of an endpoint may have a place of its own.
const MaxSources = 5

// Report is what one source says of one server at one moment. What a source does not know it leaves out: the zero value of a field says
// nothing, and a number counts only if Load.Has says that it is there, so that 0 can be told from unknown.
//
// A Report and its Models belong to whoever made it, and may be used again once the function that took it has returned.
type Report struct {
	// Server is the server as a whole. While a report leaves it out, or OnDemand, what the source said before stands.
	Server ServerState
	// Load is how busy the server is.
	Load Load
	// Models are what is known of single models. Each name stands there once.
	Models []Model
	// Complete says that Models holds every model that the server has: what is not there is not in its memory. Otherwise
	// nothing is said of models that are not there, and what an earlier report of the same source said of them stands.
	Complete bool
	// Firsthand says that the server itself speaks, whenever something changes: its word on its models counts for more than what others have
	// asked it since.
	Firsthand bool
	// OnDemand says whether the server loads a model when it is asked for it.
	OnDemand Answer
	// Interval is how often the source reports at least. A report counts until it is older than three times that (and than the
	// configured staleAfter); 0 means that the source reports changes only, and that the last report holds until it is withdrawn.
	Interval time.Duration
	// Age is how old what the report says was when it came, as far as the source knows.
	Age time.Duration
}

// Answer is yes, no or neither.
type Answer uint8

// The answers. Unknown is the zero value.
const (
	Unknown Answer = iota
	Yes
	No
)

// ServerState is what a source says of a server as a whole.
type ServerState uint8

// The states of a server.
const (
	// ServerUnknown: the source says nothing of it. It is the zero value.
	ServerUnknown ServerState = iota
	// ServerReady: it takes calls, as far as it knows.
	ServerReady
	// ServerNotReady: it says that it does not. It may nevertheless serve models that are said to be ready.
	ServerNotReady
	// ServerDraining: it is going away. It finishes what it has, and wants nothing new.
	ServerDraining
)

// String returns the state in lower case.
func (s ServerState) String() string {
	return [...]string{"unknown", "ready", "not ready", "draining"}[min(s, ServerDraining)]
}

// ModelState is what a source says of a model on a server.
type ModelState uint8

// The states of a model on a server.
const (
	// ModelUnknown: the source says nothing of it. It is the zero value.
	ModelUnknown ModelState = iota
	// ModelReady: it is in memory and answers.
	ModelReady
	// ModelLoading: it is on its way into memory.
	ModelLoading
	// ModelAbsent: it is not in memory. Whether a call would load it depends on the server (Report.OnDemand).
	ModelAbsent
	// ModelUnavailable: it cannot answer: its load failed, or it is being unloaded, or it is switched off.
	ModelUnavailable
)

// String returns the state in lower case.
func (s ModelState) String() string {
	return [...]string{"unknown", "ready", "loading", "absent", "unavailable"}[min(s, ModelUnavailable)]
}

// Model is what a report says of one model.
type Model struct {
	// Name is the model's name as calls name it: "name", or "name:version" for one version where that is what was asked about.
	Name  string
	State ModelState
	// Service is the mean time that the model takes for a request on this server, without waiting; 0 if that is not known.
	Service time.Duration
	// ETA is how long it takes from now until a model that is loading is ready; 0 if that is not known.
	ETA time.Duration
}

// Load is how busy a server is, for all its clients together. It is small, holds no pointers and may be copied.
type Load struct {
	// Has says which of the fields below are known.
	Has Fields

	// Active is the number of requests that the server works on or that wait for a worker; not those that wait for a model to be loaded.
	Active int
	// Waiting is the number of requests that wait: for a worker, or for a model to be loaded.
	Waiting int
	// Workers is how many requests the server works on at a time.
	Workers int
	// Connections is the number of calls that are open on the server.
	Connections int
	// Utilization is how busy the server is: 0 is idle, 1 is fully busy, and more than that is overload.
	Utilization float64
	// QueueDelay is how long requests have lately waited for a worker.
	QueueDelay time.Duration
	// MemoryFree is the share of the GPUs' memory that is free, from 0 to 1.
	MemoryFree float64
	// LaneFree is how long it takes from now until the server can begin to load another model; 0 if it can at once.
	LaneFree time.Duration
	// LoadTime is how long the server takes to load a model.
	LoadTime time.Duration
	// Victim is what has to leave memory when another model of usual size is loaded.
	Victim Victim
	// VictimAge is how long ago the victim was used; it counts if Victim is VictimIdle.
	VictimAge time.Duration
	// VictimModel is the key of the victim, as the picker hashes names; 0 if it is not known.
	VictimModel uint64
}

// Fields is a set of fields of a Load.
type Fields uint16

// The fields that a Load may have. HasVictim covers Victim, VictimAge and VictimModel.
const (
	HasActive Fields = 1 << iota
	HasWaiting
	HasWorkers
	HasConnections
	HasUtilization
	HasQueueDelay
	HasMemoryFree
	HasLaneFree
	HasLoadTime
	HasVictim
)

// Victim says what has to leave a server's memory when another model is loaded.
type Victim uint8

// The kinds of victims.
const (
	// VictimNone: nothing has to leave; there is room. It is the zero value.
	VictimNone Victim = iota
	// VictimIdle: a model that nobody uses now.
	VictimIdle
	// VictimBusy: every model is in use, and one of them has to be drained first.
	VictimBusy
)

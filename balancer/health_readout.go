package balancer

import (
	"time"

	"github.com/mlbalancer/mlbalancer/health"
	"github.com/mlbalancer/mlbalancer/health/monitor"
	"github.com/mlbalancer/mlbalancer/picker"
)

// HealthState is what is known of an endpoint's health beside its breaker.
type HealthState struct {
	// Server is what follows from all that is said of the server as a whole: "ready", "not ready", "starting" (not ready, and not
	// seen ready since it was connected), "draining", or "unhealthy" for its score. A server that is not ready may serve models that
	// are.
	Server string `json:"server"`
	// Sources are those that have said something that still counts, with what each says of the server as a whole: "ready",
	// "not ready", "draining" or "unknown". Nil if there are none.
	Sources map[string]string `json:"sources,omitempty"`
	// Score is from 0, bad, to 1.
	Score float64 `json:"score"`
	// Parts are the signals that the score is made of, each from 0 to 1; in JSON those that are not known are left out.
	Parts health.Parts `json:"parts"`
	// SlowStart is the share of its usual traffic that the endpoint gets while it is new, 1 otherwise.
	SlowStart float64 `json:"slow_start"`
	// Load is how busy the server said it was, nil if it did not.
	Load *LoadState `json:"load,omitempty"`
}

// LoadState is how busy a server said it was, for all its clients together. What it has not said is nil; what it has said is as
// of its last report that had it, however old that is, and times that are still to pass are as of the read-out.
type LoadState struct {
	// Age is how old the last report is.
	Age time.Duration `json:"age_ns"`
	// Active is the number of requests that the server works on or that wait for a worker.
	Active *int `json:"active,omitempty"`
	// Waiting is the number of requests that wait, for a worker or for a model to be loaded.
	Waiting *int `json:"waiting,omitempty"`
	// Workers is how many requests the server works on at a time.
	Workers *int `json:"workers,omitempty"`
	// Connections is the number of calls that are open on the server.
	Connections *int `json:"connections,omitempty"`
	// Utilization is 0 if the server is idle, 1 if it is fully busy, and more than that if it is overloaded.
	Utilization *float64 `json:"utilization,omitempty"`
	// QueueDelay is how long requests have lately waited for a worker.
	QueueDelay *time.Duration `json:"queue_delay_ns,omitempty"`
	// MemoryFree is the share of the GPUs' memory that is free, 0 to 1.
	MemoryFree *float64 `json:"memory_free,omitempty"`
	// LaneFree is how long it takes until the server can begin to load another model; 0 if it can at once.
	LaneFree *time.Duration `json:"lane_free_ns,omitempty"`
	// LoadTime is how long the server takes to load a model.
	LoadTime *time.Duration `json:"load_time_ns,omitempty"`
	// Victim is what has to leave memory when another model is loaded.
	Victim *VictimState `json:"victim,omitempty"`
}

// VictimState is what has to leave a server's memory when another model of usual size is loaded.
type VictimState struct {
	// Kind is "none" if there is room, "idle" for a model that nobody uses now, "busy" if all are in use.
	Kind string `json:"kind"`
	// UnusedFor is for how long an idle one has not been used, 0 for the other kinds.
	UnusedFor time.Duration `json:"unused_for_ns,omitempty"`
}

func readHealth(e *picker.Endpoint, now int64) HealthState {
	h := e.Health()
	s := HealthState{Server: h.Server, Score: h.Score, Parts: h.Parts, SlowStart: e.Ramp(now)}
	for i, name := range monitor.Names() {
		if state, ok := h.Said(i); ok {
			if s.Sources == nil {
				s.Sources = map[string]string{}
			}
			s.Sources[name] = state.String()
		}
	}
	if load, age := e.Facts(now); load.Has != 0 {
		s.Load = readLoad(&load, age)
	}
	return s
}

func readLoad(l *health.Load, age time.Duration) *LoadState {
	s := &LoadState{
		Age:         age,
		Active:      said(l, health.HasActive, l.Active),
		Waiting:     said(l, health.HasWaiting, l.Waiting),
		Workers:     said(l, health.HasWorkers, l.Workers),
		Connections: said(l, health.HasConnections, l.Connections),
		Utilization: said(l, health.HasUtilization, l.Utilization),
		QueueDelay:  said(l, health.HasQueueDelay, l.QueueDelay),
		MemoryFree:  said(l, health.HasMemoryFree, l.MemoryFree),
		LaneFree:    said(l, health.HasLaneFree, l.LaneFree),
		LoadTime:    said(l, health.HasLoadTime, l.LoadTime),
	}
	if l.Has&health.HasVictim != 0 {
		s.Victim = &VictimState{Kind: [...]string{"none", "idle", "busy"}[min(l.Victim, health.VictimBusy)]}
		if l.Victim == health.VictimIdle {
			s.Victim.UnusedFor = l.VictimAge
		}
	}
	return s
}

// said returns what the load says in a field, nil if it says nothing there.
func said[T any](l *health.Load, field health.Fields, value T) *T {
	if l.Has&field == 0 {
		return nil
	}
	return &value
}

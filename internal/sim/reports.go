package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/mlbalancer/mlbalancer/health"
)

// Reports says what clients learn of servers.
type Reports struct {
	// Mode is how they learn it.
	Mode ReportMode
	// Every is the period of a stream or a poll; above 0 there.
	Every time.Duration
}

// ReportMode is how clients learn of servers.
type ReportMode uint8

const (
	// Stream: each server sends all clients everything it knows once in a period, and with each response. It is the zero value.
	Stream ReportMode = iota
	// Poll: each server is asked once in a period which models it has, and says nothing else.
	Poll
	// Trailers: servers send everything they know with each response, and nothing else.
	Trailers
	// None: servers say nothing.
	None
)

var reportModes = [...]string{Stream: "stream", Poll: "poll", Trailers: "trailers", None: "none"}

// reportsWant is what a text of Reports looks like.
const reportsWant = "stream:DURATION, poll:DURATION, trailers or none, such as stream:250ms"

// ParseReports reads what Reports.String writes. Its errors are of type *FieldError.
func ParseReports(text string) (Reports, error) {
	bad := &FieldError{"reports", fmt.Sprintf("%q", text), reportsWant}
	mode, every, timed := strings.Cut(text, ":")
	for m, name := range reportModes {
		if mode != name || timed != ReportMode(m).periodic() {
			continue
		}
		r := Reports{Mode: ReportMode(m)}
		if timed {
			d, err := time.ParseDuration(every)
			if err != nil {
				return r, bad
			}
			r.Every = d
		}
		return r, r.Validate()
	}
	return Reports{}, bad
}

// periodic reports whether the mode has a period.
func (m ReportMode) periodic() bool { return m == Stream || m == Poll }

// Validate returns a *FieldError if the period is out of range, or nil.
func (r Reports) Validate() error {
	if r.Mode.periodic() && (r.Every < time.Millisecond || r.Every > time.Hour) {
		return &FieldError{"reports", r.String(), "a period from 1ms to 1h"}
	}
	return nil
}

// String returns the text that ParseReports reads.
func (r Reports) String() string {
	if r.Mode.periodic() {
		return reportModes[r.Mode] + ":" + r.Every.String()
	}
	return reportModes[r.Mode]
}

// onResponse reports whether responses carry reports.
func (r Reports) onResponse() bool { return r.Mode == Stream || r.Mode == Trailers }

// Report is what a server says of itself.
type Report struct {
	health.Report
	// Rate is how many calls a second it has lately served, as gRPC's weighted_round_robin wants to know.
	Rate float64
	// Response says that the report came with a response.
	Response bool
}

// loadFields are the fields of a Load that a server knows.
const loadFields = health.HasActive | health.HasWaiting | health.HasWorkers | health.HasConnections | health.HasUtilization |
	health.HasQueueDelay | health.HasMemoryFree | health.HasLaneFree | health.HasLoadTime | health.HasVictim

// report fills r with what the server says at now. Its slices are used again.
func (s *server) report(now time.Duration, r *Report) {
	f := s.fleet
	models := r.Models[:0]
	*r = Report{Rate: s.rate}
	r.Complete, r.OnDemand = true, health.Yes
	if f.Reports.Mode.periodic() {
		r.Interval = f.Reports.Every
	}
	whole := f.Reports.Mode != Poll
	for _, m := range s.present {
		if m.state == resident {
			models = append(models, health.Model{Name: f.names[m.index], State: health.ModelReady})
			if whole {
				models[len(models)-1].Service = time.Duration(float64(s.service[m.index]) * 1e9)
			}
		}
	}
	for _, m := range s.lane {
		models = append(models, health.Model{Name: f.names[m.index], State: health.ModelLoading})
		if whole {
			models[len(models)-1].ETA = s.eta(now, m)
		}
	}
	r.Models = models
	if !whole {
		return
	}
	r.Server = health.ServerReady
	r.Load = health.Load{
		Has: loadFields, Active: s.active(), Waiting: s.queue.n + s.waits, Workers: f.Workers, Connections: s.active() + s.waits,
		Utilization: s.utilization, QueueDelay: time.Duration(s.delay * 1e9),
		MemoryFree: float64(s.slots-s.occupied) / float64(s.slots),
		LaneFree:   s.laneFree(now), LoadTime: s.loadTime(),
	}
	if s.occupied+s.pending() >= s.slots {
		s.reportVictim(now, &r.Load)
	}
}

func (s *server) reportVictim(now time.Duration, l *health.Load) {
	v := s.victim()
	if v == nil {
		l.Victim = health.VictimBusy
		return
	}
	l.Victim, l.VictimModel = health.VictimIdle, s.fleet.keys[v.index]
	if v.holds > 0 {
		l.Victim = health.VictimBusy
	}
	l.VictimAge = now - v.usedAt
}

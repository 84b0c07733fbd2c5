package monitortest

import (
	"maps"
	"sync"
	"time"

	"github.com/mlbalancer/mlbalancer/health"
)

// Record remembers what was reported. It is a monitor.Sink for one source, and its Add is what Watch of a source reports to. The
// zero value is ready to use, concurrently.
type Record struct {
	mu   sync.Mutex
	said Said
}

// Said is what was reported so far.
type Said struct {
	// Reports, Withdrawn and Silences count the calls of Report (or Add), Withdraw and Silent.
	Reports, Withdrawn, Silences int
	// First is when the first report came, and Last when the last did.
	First, Last time.Time
	// Report is the last report, without its models.
	Report health.Report
	// Models are the models as the reports together say: those unknown are left out.
	Models map[string]health.Model
}

// Add takes a report.
func (r *Record) Add(rep *health.Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said.Last = time.Now()
	if r.said.Reports++; r.said.Reports == 1 {
		r.said.First = r.said.Last
	}
	r.said.Report = *rep
	r.said.Report.Models = nil
	if r.said.Models == nil || rep.Complete {
		r.said.Models = map[string]health.Model{}
	}
	for _, m := range rep.Models {
		r.said.Models[m.Name] = m
		if m.State == health.ModelUnknown {
			delete(r.said.Models, m.Name)
		}
	}
}

// Report implements monitor.Sink.
func (r *Record) Report(_ int, rep *health.Report) { r.Add(rep) }

// Withdraw implements monitor.Sink.
func (r *Record) Withdraw(int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said.Withdrawn++
	r.said.Report, r.said.Models = health.Report{}, nil
}

// Silent implements monitor.Sink.
func (r *Record) Silent(int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said.Silences++
}

// Now returns what was said so far.
func (r *Record) Now() Said {
	r.mu.Lock()
	defer r.mu.Unlock()
	said := r.said
	said.Models = maps.Clone(r.said.Models)
	return said
}

// States returns the states of the models as the reports together say.
func (r *Record) States() map[string]health.ModelState {
	states := map[string]health.ModelState{}
	for name, m := range r.Now().Models {
		states[name] = m.State
	}
	return states
}

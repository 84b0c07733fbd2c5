// Package schedule turns a trace into the calls of a replay: when each one starts, for which model, how long it keeps a server
// busy and which client sends it. All policies of a comparison are sent the same schedule.
//
// All times are model time; the replay scales them.
package schedule

import (
	"cmp"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/mlbalancer/mlbalancer/examples/fleet/trace"
)

// Options say how a trace becomes a schedule.
type Options struct {
	// Workers is how many requests the whole fleet runs at once; at least 1.
	Workers int
	// Rho is the offered load: the work of all calls over the fleet's capacity, loads of models excluded. Above 0. The trace's
	// time is stretched or shrunk to it.
	Rho float64
	// Service is the mean work of a call; above 0.
	Service time.Duration
	// Warmup and Passes are how many times the trace is replayed before the measurement starts, and measured. Passes is at
	// least 1.
	Warmup, Passes int
	// Clients is how many clients the calls are dealt to; at least 1.
	Clients int
	// Seed determines all that is drawn.
	Seed uint64
}

// Call is one request of the replay.
type Call struct {
	// At is when the call starts, since the start of the replay.
	At time.Duration
	// Work is how long it keeps a worker of a server busy.
	Work time.Duration
	// Model is the index in Schedule.Models of the model that is asked.
	Model int
	// Client is the number of the client that sends it, from 0.
	Client int
}

// Schedule is a trace made ready for replay.
type Schedule struct {
	// Calls are sorted by At: every row of the trace once per pass.
	Calls []Call
	// Models are the names of the models, those with most calls first.
	Models []string
	// Share is each model's share of the calls.
	Share []float64
	// From and To bound the measured part: calls that start at From or later count.
	From, To time.Duration
}

// New makes a schedule of a trace with at least one row.
func New(t *trace.Trace, o Options) *Schedule {
	s := &Schedule{}
	index := s.rank(t)
	rows := len(t.Rows)
	pass := time.Duration(float64(rows) * float64(o.Service) / (float64(o.Workers) * o.Rho))
	s.From, s.To = time.Duration(o.Warmup)*pass, time.Duration(o.Warmup+o.Passes)*pass

	// The last arrival of a pass and the first of the next are a mean interarrival time apart.
	stretch := 0.0
	if span := t.Span(); span > 0 {
		stretch = float64(pass) / (span * float64(rows) / float64(rows-1))
	}
	sizes, modelMeans := sizes(t)
	rnd := rand.New(rand.NewPCG(o.Seed, 0x7363686564756c65))
	factor := make([]float64, len(s.Models))
	for m := range factor {
		factor[m] = 1
		if modelMeans {
			factor[m] = math.Exp(modelSigma * rnd.NormFloat64())
		}
	}
	residual := residualSigma(sizes)
	s.Calls = make([]Call, 0, rows*(o.Warmup+o.Passes))
	work, total := make([]float64, 0, cap(s.Calls)), 0.0
	for p := range o.Warmup + o.Passes {
		for i, row := range t.Rows {
			s.Calls = append(s.Calls, Call{
				At:     time.Duration(p)*pass + time.Duration((row.Arrival-t.Rows[0].Arrival)*stretch),
				Model:  index[row.Model],
				Client: rnd.IntN(o.Clients),
			})
			w := sizes[i] * factor[index[row.Model]] * math.Exp(residual*rnd.NormFloat64())
			work = append(work, w)
			total += w
		}
	}
	scale := float64(o.Service) * float64(len(work)) / total
	for i, w := range work {
		s.Calls[i].Work = time.Duration(w * scale)
	}
	return s
}

// rank fills in Models and Share, and returns each model's index.
func (s *Schedule) rank(t *trace.Trace) map[string]int {
	counts := t.Models()
	s.Models = Popular(t)
	index := make(map[string]int, len(counts))
	for i, m := range s.Models {
		index[m] = i
		s.Share = append(s.Share, float64(counts[m])/float64(len(t.Rows)))
	}
	return index
}

// Popular returns the names of a trace's models, those with most calls first.
func Popular(t *trace.Trace) []string {
	counts := t.Models()
	return slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a, b))
	})
}

// Package comparison replays one trace under several policies, one after another, and reports what each came to.
package comparison

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/mlbalancer/mlbalancer/examples/fleet/breakers"
	"github.com/mlbalancer/mlbalancer/examples/fleet/fault"
	"github.com/mlbalancer/mlbalancer/examples/fleet/policy"
	"github.com/mlbalancer/mlbalancer/examples/fleet/replay"
	"github.com/mlbalancer/mlbalancer/examples/fleet/report"
	"github.com/mlbalancer/mlbalancer/examples/fleet/schedule"
	"github.com/mlbalancer/mlbalancer/examples/fleet/stats"
	"github.com/mlbalancer/mlbalancer/examples/fleet/trace"
	"github.com/mlbalancer/mlbalancer/internal/fleet"
)

// Options say what is compared. All numbers must be set; times are model time.
type Options struct {
	Trace    *trace.Trace
	Policies []policy.Policy
	Faults   []fault.Fault
	// Signals are what the servers say of themselves.
	Signals fleet.Signals
	// NoRetry says that failed calls are not sent again.
	NoRetry bool

	Servers, Slots, Workers, Clients int
	// Rho is the offered load, loads of models excluded.
	Rho float64
	// Service is the mean work of a call, Load the mean time to load a model, Deadline how long callers wait.
	Service, Load, Deadline time.Duration
	// Speed is how many times as fast as model time the replay runs.
	Speed float64
	// Warmup and Passes are how often the trace is replayed before the measurement, and measured.
	Warmup, Passes int
	// Seeds are those of the replays: each policy is replayed once with each.
	Seeds []uint64
}

// Progress hears how far a comparison is.
type Progress interface {
	// Begin says that the n-th of total replays starts.
	Begin(n, total int, policy string, seed uint64)
	// Update says how far it is, from 0 to 1.
	Update(done float64)
	// End says what it came to.
	End(f stats.Figures, wall time.Duration)
}

// Run compares the policies. It ends early, with an error, when ctx does.
func Run(ctx context.Context, o Options, progress Progress) (*report.Report, error) {
	runs := make([][]stats.Figures, len(o.Policies))
	plots := make([]report.Plots, len(o.Policies))
	records := make([]*breakers.Record, len(o.Policies))
	var measured time.Duration
	n := 0
	for _, seed := range o.Seeds {
		calls := schedule.New(o.Trace, schedule.Options{
			Workers: o.Servers * o.Workers, Rho: o.Rho, Service: o.Service,
			Warmup: o.Warmup, Passes: o.Passes, Clients: o.Clients, Seed: seed,
		})
		measured = calls.To - calls.From
		for i, p := range o.Policies {
			if o.NoRetry {
				p = p.WithoutRetry()
			}
			progress.Begin(n, len(o.Seeds)*len(o.Policies), p.Name, seed)
			n++
			runtime.GC() // no policy pays for another's garbage
			result, err := replay.Run(ctx, replay.Options{
				Schedule: calls,
				Policy:   p,
				Fleet: fleet.Config{
					Servers: o.Servers, Workers: o.Workers, Slots: o.Slots, Service: o.Service, Load: o.Load,
					Scale: 1 / o.Speed, Seed: seed, Signals: o.Signals,
				},
				Faults: o.Faults, Clients: o.Clients, Deadline: o.Deadline, Seed: seed, Progress: progress.Update,
			})
			if err != nil {
				return nil, fmt.Errorf("%s, seed %d: %w", p.Name, seed, err)
			}
			figures := stats.Of(result.Samples, result.Servers)
			progress.End(figures, result.Wall)
			runs[i] = append(runs[i], figures)
			if seed == o.Seeds[0] {
				plots[i], records[i] = plotsOf(result, calls), result.Breakers
			}
		}
	}
	r := &report.Report{
		Trace: report.Trace{Name: o.Trace.Name, Rows: len(o.Trace.Rows), Models: len(o.Trace.Models())},
		Setup: setup(o, measured),
	}
	for i, p := range o.Policies {
		result := report.Policy{Name: p.Name, Figures: stats.Median(runs[i]), Plots: plots[i], Breakers: records[i]}
		if len(o.Seeds) > 1 {
			result.Runs = runs[i]
		}
		r.Policies = append(r.Policies, result)
	}
	return r, nil
}

// curvePoints is how many points the curve of the latency distribution has.
const curvePoints = 240

func plotsOf(result *replay.Result, calls *schedule.Schedule) report.Plots {
	windows := report.P99Windows(len(result.Samples), calls.To-calls.From)
	return report.Plots{
		Exceedance: stats.Exceedance(result.Samples, curvePoints),
		P99:        stats.P99Series(result.Samples, calls.From, calls.To, windows),
		Models:     calls.Models,
		Share:      calls.Share,
		Resident:   result.Resident,
	}
}

func setup(o Options, measured time.Duration) report.Setup {
	s := report.Setup{
		Servers: o.Servers, Slots: o.Slots, Workers: o.Workers, Clients: o.Clients, Rho: o.Rho,
		Service: stats.Millis(o.Service), Load: stats.Millis(o.Load), Deadline: stats.Millis(o.Deadline),
		Speed: o.Speed, Warmup: o.Warmup, Passes: o.Passes, Seeds: o.Seeds, Measured: stats.Millis(measured), NoRetry: o.NoRetry, Signals: o.Signals.String(),
		Go: runtime.Version(), GRPC: "grpc", CPUs: runtime.GOMAXPROCS(0),
	}
	for _, f := range o.Faults {
		s.Faults = append(s.Faults, report.Fault{Fault: f.String(), From: f.From, To: min(f.To, 1)})
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "google.golang.org/grpc" {
				s.GRPC += " " + m.Version
			}
		}
	}
	return s
}

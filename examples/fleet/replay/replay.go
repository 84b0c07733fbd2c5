// Package replay sends the calls of a schedule through real gRPC to a simulated fleet under one policy, and measures what
// their callers see.
//
// Calls are sent at their time whether or not earlier ones have ended (an open loop), and their latency counts from the time
// they were due: a replay that falls behind does not look fast.
package replay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mlbalancer/mlbalancer/examples/fleet/breakers"
	"github.com/mlbalancer/mlbalancer/examples/fleet/fault"
	"github.com/mlbalancer/mlbalancer/examples/fleet/orcaload"
	"github.com/mlbalancer/mlbalancer/examples/fleet/policy"
	"github.com/mlbalancer/mlbalancer/examples/fleet/schedule"
	"github.com/mlbalancer/mlbalancer/examples/fleet/stats"
	"github.com/mlbalancer/mlbalancer/internal/fleet"
)

// Options say what is replayed.
type Options struct {
	// Schedule is what is sent, and Policy decides where.
	Schedule *schedule.Schedule
	Policy   policy.Policy
	// Fleet describes the servers; Servers, Workers and Scale must be set. A replay starts a fresh fleet with nothing in memory.
	Fleet fleet.Config
	// Faults are what goes wrong.
	Faults []fault.Fault
	// Clients is the number of channels, at least as many as Schedule was made for.
	Clients int
	// Deadline is how long callers wait, in model time.
	Deadline time.Duration
	// Seed determines the servers' addresses, which decide where hashing policies put which model.
	Seed uint64
	// Progress, if not nil, is called now and then with how far the replay is, from 0 to 1.
	Progress func(done float64)
}

// Result is what the measured part of a replay came to.
type Result struct {
	// Samples are the calls, in order of the schedule.
	Samples []stats.Sample
	// Servers are what the servers did.
	Servers []stats.Server
	// Resident is the share of the measured part for which each model (by its index in Schedule.Models) was in the memory of each server.
	Resident [][]float64
	// Breakers is what the policy's circuit breakers did; nil if it has none.
	Breakers *breakers.Record
	// Wall is how long the whole replay took.
	Wall time.Duration
}

// Run replays a schedule. It ends early, with an error, when ctx does.
func Run(ctx context.Context, o Options) (*Result, error) {
	began := time.Now()
	if o.Policy.LoadReports {
		// They take the place of the fleet's own, and nothing else that a server says is for such a policy.
		o.Fleet.Signals = fleet.NoSignals
		o.Fleet.ServerOptions = append(slices.Clip(o.Fleet.ServerOptions),
			orcaload.ServerOptions(o.Fleet.Workers, time.Duration(float64(loadPeriod)*o.Fleet.Scale))...)
	}
	f, err := fleet.Start(o.Fleet)
	if err != nil {
		return nil, fmt.Errorf("starting the fleet: %w", err)
	}
	defer f.Close()
	clock := clock{start: time.Now().Add(lead), scale: o.Fleet.Scale}
	addresses := addressesFor(o.Seed, len(f.Servers))
	var watcher *breakers.Watcher
	if o.Policy.Breakers {
		watcher = breakers.New(addresses, f.Addrs(), clock.wall(o.Schedule.From), o.Fleet.Scale)
	}
	clients, err := dial(f, o, addresses, watcher)
	if err != nil {
		return nil, err
	}
	defer clients.close()

	outer := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if watcher != nil {
		watcher.Start(ctx)
	}
	r := &run{Options: o, clients: clients, clock: clock}
	r.samples = make([]stats.Sample, len(o.Schedule.Calls))
	faults := r.startFaults(ctx, f.Servers)
	var before []stats.Server
	err = r.dispatch(ctx, func() { before = counters(f) })
	r.calls.Wait()
	after := counters(f)
	cancel()
	var record *breakers.Record
	if watcher != nil {
		record = watcher.Stop(outer)
	}
	if err := errors.Join(err, faults()); err != nil {
		return nil, err
	}
	result := &Result{Wall: time.Since(began), Servers: after, Breakers: record, Resident: r.residency(f.Events(), len(f.Servers))}
	for i, call := range o.Schedule.Calls {
		if call.At >= o.Schedule.From {
			result.Samples = append(result.Samples, r.samples[i])
		}
	}
	for i := range after {
		after[i] = after[i].Since(before[i])
	}
	return result, nil
}

const (
	// loadPeriod is the period, in model time, of the load figures that servers report.
	loadPeriod = time.Second
	// lead is the wall-clock time between the set-up and the first call.
	lead = 50 * time.Millisecond
)

// run is one replay under way.
type run struct {
	Options
	clock   clock
	clients clients
	samples []stats.Sample // by index of the call; each is written by its call's goroutine
	calls   sync.WaitGroup
}

// dispatch starts every call at its time, and calls measure before the first one that counts.
func (r *run) dispatch(ctx context.Context, measure func()) error {
	end := r.Schedule.To
	var reported time.Time
	measuring := false
	for i := range r.Schedule.Calls {
		call := &r.Schedule.Calls[i]
		if err := r.clock.sleep(ctx, call.At); err != nil {
			return err
		}
		if !measuring && call.At >= r.Schedule.From {
			measuring = true
			measure()
		}
		r.calls.Go(func() { r.send(ctx, i) })
		if r.Progress != nil && time.Since(reported) > 100*time.Millisecond {
			reported = time.Now()
			r.Progress(float64(call.At) / float64(end))
		}
	}
	return nil
}

// startFaults makes each fault happen at its time, until ctx ends. The function that it returns waits for them to be over.
func (r *run) startFaults(ctx context.Context, servers []*fleet.Server) (wait func() error) {
	var running sync.WaitGroup
	var faults []fault.Fault
	for _, f := range r.Faults {
		faults = append(faults, f.Steps(len(servers))...)
	}
	failures := make([]error, len(faults))
	at := func(fraction float64) time.Duration {
		return r.Schedule.From + time.Duration(fraction*float64(r.Schedule.To-r.Schedule.From))
	}
	for i, f := range faults {
		running.Go(func() {
			if r.clock.sleep(ctx, at(f.From)) != nil {
				return
			}
			if failures[i] = f.Begin(servers); failures[i] != nil || f.Lasts() {
				return
			}
			if r.clock.sleep(ctx, at(f.To)) == nil {
				failures[i] = f.End(servers)
			}
		})
	}
	return func() error {
		running.Wait()
		return errors.Join(failures...)
	}
}

// counters returns what the servers have counted so far.
func counters(f *fleet.Fleet) []stats.Server {
	all := f.Stats()
	servers := make([]stats.Server, len(all))
	for i, s := range all {
		servers[i] = stats.Server{Calls: s.Calls, Hits: s.Hits, Loads: s.ColdLoads, Busy: s.Busy}
	}
	return servers
}

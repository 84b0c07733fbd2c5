package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/mlbalancer/mlbalancer/internal/sim"
)

// flags are the arguments.
type flags struct {
	list, json, goals bool
	html              string
	scenarios         []string // nil for a fleet of one's own
	policies          []string // nil for those that suit the scenario
	seeds             int
	clients           int          // 0 for the scenario's
	reports           *sim.Reports // nil for the scenario's
	trace             *sim.Trace
	own               sim.Scenario
	find              func(id string) (sim.Scenario, error) // of scenarios by their IDs
}

const maxSeeds = 1000

// parse reads the arguments.
func parse(args []string, stderr io.Writer) (*flags, error) {
	f := &flags{seeds: 3, own: sim.Defaults(), find: sim.Find}
	f.own.ID, f.own.About = "own", "a fleet of one's own"
	set := flag.NewFlagSet("mlsim", flag.ContinueOnError)
	set.SetOutput(stderr)
	set.BoolVar(&f.list, "list", false, "list scenarios and policies, and do nothing else")
	set.BoolVar(&f.json, "json", false, "print JSON instead of a table")
	set.BoolVar(&f.goals, "goals", false, "check the goals for routing quality, and exit with 1 if one is missed")
	set.StringVar(&f.html, "html", "", "write a report with plots to `file`")
	set.Func("scenario", "`IDs` of scenarios, separated by commas, or all", func(s string) error {
		f.scenarios = split(s)
		return nil
	})
	set.Func("policies", "`names` of policies, separated by commas; default: those that suit the scenario", func(s string) error {
		f.policies = split(s)
		for _, p := range f.policies {
			if _, err := sim.KindOf(p); err != nil {
				return err
			}
		}
		return nil
	})
	set.Func("seeds", "`number` of runs of each policy, with the seeds 1, 2, ...; default 3", whole(&f.seeds, 1, maxSeeds))
	set.Func("clients", "`number` of clients that share the traffic; default: the scenario's", whole(&f.clients, 1, 10_000))
	const hear = "what clients hear from servers: stream:250ms, poll:5s, trailers or none; default: the scenario's"
	set.Func("reports", hear, func(s string) error {
		r, err := sim.ParseReports(s)
		f.reports = &r
		return err
	})
	var traceFile string
	set.StringVar(&traceFile, "trace", "", "CSV `file` with columns arrival_s and model_id, for the scenarios that replay one and for a fleet of one's own")
	const ownFleet = "of a fleet of one's own: "
	set.Func("servers", ownFleet+"`number` of servers; default 32", whole(&f.own.Servers, 1, 10_000))
	set.Func("slots", ownFleet+"`number` of models that fit into a server's memory; default 4", whole(&f.own.Slots, 1, 10_000))
	set.Func("models", ownFleet+"`number` of models; default 64", whole(&f.own.Models, 1, 100_000))
	set.Func("zipf", ownFleet+"how fast popularity falls with rank; default 1", number(&f.own.Zipf, "0 to 10"))
	set.Func("rho", ownFleet+"offered work over capacity; default 0.7", number(&f.own.Rho, "above 0, up to 10"))
	measured := f.own.To - f.own.From
	set.Func("warmup", ownFleet+"`time` before the measured part; default 2m", duration(&f.own.From))
	set.Func("measure", ownFleet+"`time` that is measured; default 5m", duration(&measured))
	set.Func("load", ownFleet+"`time` that it takes to load a model; default 5s", duration(&f.own.Load))
	switch err := set.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil, err
	case err != nil:
		return nil, errUsage
	case set.NArg() > 0:
		return nil, fmt.Errorf("arguments are %q, want flags only", set.Args())
	}
	f.own.To = f.own.From + measured
	if err := f.exclude(set); err != nil {
		return nil, err
	}
	if traceFile != "" {
		f.own.About += ", and a trace"
		file, err := os.Open(traceFile)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		if f.trace, err = sim.ReadTrace(file, traceFile); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// exclude returns an error for flags that do not go together.
func (f *flags) exclude(set *flag.FlagSet) error {
	var err error
	traced := false
	set.Visit(func(g *flag.Flag) { traced = traced || g.Name == "trace" })
	set.Visit(func(g *flag.Flag) {
		if traced && (g.Name == "models" || g.Name == "zipf") {
			err = fmt.Errorf("-%s is given with -trace, want it without: a trace has its own models", g.Name)
		}
		switch g.Name {
		case "servers", "slots", "models", "zipf", "rho", "load", "warmup", "measure":
			if f.scenarios != nil || f.goals {
				err = fmt.Errorf("-%s is given with -scenario or -goals, want it alone: it is for fleets of one's own", g.Name)
			}
		case "scenario", "clients", "reports", "html":
			if f.goals {
				err = fmt.Errorf("-%s is given with -goals, want it without: each goal names its scenarios", g.Name)
			}
		}
	})
	return err
}

func split(list string) []string {
	names := strings.Split(list, ",")
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
	}
	return names
}

// whole returns what sets a whole number.
func whole(p *int, low, high int) func(string) error {
	return func(s string) error {
		v, err := strconv.Atoi(s)
		if err != nil || v < low || v > high {
			return fmt.Errorf("want a whole number from %d to %d", low, high)
		}
		*p = v
		return nil
	}
}

// number returns what sets a number; its range is checked with the scenario.
func number(p *float64, want string) func(string) error {
	return func(s string) error {
		v, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return fmt.Errorf("want a number, %s", want)
		}
		*p = v
		return nil
	}
}

func duration(p *time.Duration) func(string) error {
	return func(s string) error {
		v, err := time.ParseDuration(s)
		if err != nil || v <= 0 {
			return errors.New("want a duration above 0 such as 5s")
		}
		*p = v
		return nil
	}
}

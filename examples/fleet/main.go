// Fleet replays a trace of requests through real gRPC to a simulated fleet of GPU model servers, under several load-balancing
// policies one after another, and shows what each made of it: latencies, errors, models loaded.
//
//	go run ./fleet                                    # a built-in workload, five policies
//	go run ./fleet -trace requests.csv.gz -seeds 3
//	go run ./fleet -fault slow:2@33%-66% -policies ring_hash,model_aware
//	go run ./fleet -fault restart-all -policies round_robin,model_aware
//	go run ./fleet -signals none -policies model_aware
//	go run ./fleet -json > figures.json
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/mlbalancer/mlbalancer/examples/fleet/comparison"
	"github.com/mlbalancer/mlbalancer/examples/fleet/fault"
	"github.com/mlbalancer/mlbalancer/examples/fleet/policy"
	"github.com/mlbalancer/mlbalancer/examples/fleet/progress"
	"github.com/mlbalancer/mlbalancer/examples/fleet/report"
	"github.com/mlbalancer/mlbalancer/examples/fleet/schedule"
	"github.com/mlbalancer/mlbalancer/examples/fleet/trace"
	"github.com/mlbalancer/mlbalancer/examples/fleet/workload"
	"github.com/mlbalancer/mlbalancer/internal/fleet"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch err {
	case nil, flag.ErrHelp:
	default:
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

// run does what the arguments say.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if f.html != "" {
		// A place that cannot be written to is known before the replay, not after.
		if err := touch(f.html); err != nil {
			return err
		}
	}
	progressTo, bar := stderr, false
	if f.quiet {
		progressTo = io.Discard
	} else if file, ok := stderr.(*os.File); ok {
		bar = term.IsTerminal(int(file.Fd()))
	}
	r, err := comparison.Run(ctx, f.options, progress.New(progressTo, bar))
	if err != nil {
		return err
	}
	if f.html != "" {
		if err := writeHTML(r, f.html); err != nil {
			return err
		}
	}
	if f.json {
		return r.WriteJSON(stdout)
	}
	if err := r.WriteTable(stdout); err != nil {
		return err
	}
	if f.html != "" {
		path, err := filepath.Abs(f.html)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(stdout, "\nReport with plots: %s\n", path)
		return err
	}
	return nil
}

func touch(path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	return file.Close()
}

func writeHTML(r *report.Report, path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := r.WriteHTML(file); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}

// flags are the arguments.
type flags struct {
	options     comparison.Options
	json, quiet bool
	html        string
}

func parse(args []string, stderr io.Writer) (*flags, error) {
	f := &flags{}
	o := &f.options
	set := flag.NewFlagSet("fleet", flag.ContinueOnError)
	set.SetOutput(io.Discard) // main says what is wrong
	set.Usage = func() {}
	path := set.String("trace", "", "replay this `file` (CSV, gzipped or not); without it, a generated workload like a public arena's trace")
	policies := set.String("policies", strings.Join(policy.Names(), ","), "compare these policies, in this order")
	faults := set.String("fault", "", "what goes wrong, such as slow:2@33%-66%,kill:3@50%")
	set.BoolVar(&o.NoRetry, "no-retry", false, "do not send failed calls of model_aware again")
	set.IntVar(&o.Servers, "servers", 8, "number of servers")
	set.IntVar(&o.Slots, "slots", 4, "models that a server's memory holds")
	set.IntVar(&o.Workers, "workers", 4, "requests that a server runs at once")
	set.IntVar(&o.Clients, "clients", 4, "channels that the calls are dealt to")
	set.Float64Var(&o.Rho, "rho", .7, "offered load, of all workers, loads of models excluded; the trace's time is stretched to it")
	set.DurationVar(&o.Service, "service", 250*time.Millisecond, "mean time that a request keeps a worker busy")
	set.DurationVar(&o.Load, "load", 5*time.Second, "mean time to load a model")
	set.DurationVar(&o.Deadline, "deadline", 30*time.Second, "how long callers wait")
	set.Float64Var(&o.Speed, "scale", 20, "how many times as fast as model time to replay")
	set.IntVar(&o.Warmup, "warmup", 2, "passes of the trace before the measurement")
	set.IntVar(&o.Passes, "passes", 10, "passes of the trace that are measured")
	signals := set.String("signals", "health,gpustats", "what servers say of themselves: some of health, oip, orca and gpustats, or none;\n"+
		"weighted_round_robin gets load reports in any case, and nothing else")
	seed := set.Uint64("seed", 1, "seed of all that is drawn")
	seeds := set.Int("seeds", 1, "repeat with so many seeds, counting up from -seed, and show medians")
	set.BoolVar(&f.json, "json", false, "write the figures as JSON to standard output, and nothing else there")
	set.StringVar(&f.html, "html", "report.html", "write the report with plots to this `file`; empty for none")
	set.BoolVar(&f.quiet, "quiet", false, "show no progress")
	switch err := set.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		usage(set, stderr)
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w (-h shows all flags)", err)
	}
	if set.NArg() > 0 {
		return nil, fmt.Errorf("argument is %q, want flags only", set.Arg(0))
	}
	for _, n := range []struct {
		flag string
		got  any
		ok   bool
		want string
	}{
		{"servers", o.Servers, o.Servers >= 1 && o.Servers <= 1000, "1 to 1000"},
		{"slots", o.Slots, o.Slots >= 1, "1 or more"},
		{"workers", o.Workers, o.Workers >= 1, "1 or more"},
		{"clients", o.Clients, o.Clients >= 1 && o.Clients <= 1000, "1 to 1000"},
		{"rho", o.Rho, o.Rho > 0 && o.Rho <= 10, "above 0 and at most 10"},
		{"service", o.Service, o.Service > 0, "a time above 0"},
		{"load", o.Load, o.Load > 0, "a time above 0"},
		{"deadline", o.Deadline, o.Deadline > 0, "a time above 0"},
		{"scale", o.Speed, o.Speed >= 1 && o.Speed <= 1000, "1 to 1000"},
		{"warmup", o.Warmup, o.Warmup >= 0, "0 or more"},
		{"passes", o.Passes, o.Passes >= 1, "1 or more"},
		{"seeds", *seeds, *seeds >= 1, "1 or more"},
	} {
		if !n.ok {
			return nil, fmt.Errorf("-%s is %v, want %s", n.flag, n.got, n.want)
		}
	}
	for i := range *seeds {
		o.Seeds = append(o.Seeds, *seed+uint64(i))
	}
	var err error
	if o.Policies, err = policy.Select(*policies); err != nil {
		return nil, fmt.Errorf("-policies: %w", err)
	}
	if o.Signals, err = fleet.ParseSignals(*signals); err != nil {
		return nil, fmt.Errorf("-signals: %w", err)
	}
	if *path == "" {
		o.Trace = workload.Generate(*seed)
	} else if o.Trace, err = trace.Read(*path); err != nil {
		return nil, err
	}
	if o.Faults, err = fault.Parse(*faults, o.Servers, schedule.Popular(o.Trace)); err != nil {
		return nil, fmt.Errorf("-fault: %w", err)
	}
	return f, nil
}

func usage(set *flag.FlagSet, w io.Writer) {
	fmt.Fprint(w, "Usage: fleet [flags]\n\n"+
		"Replays a trace of requests to a simulated fleet of GPU model servers under several policies. Times are model time.\n\n")
	set.SetOutput(w)
	set.PrintDefaults()
	fmt.Fprint(w, "\nFaults are kind:server@from or kind:server@from-to, or restart-all; servers count from 0, times are per cent of the measured part:\n"+fault.Usage())
}

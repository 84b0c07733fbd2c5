// Mlsim runs load-balancing policies against simulated fleets of model servers in virtual time, side by side on the same calls,
// and prints what each made of them: latencies, models loaded, errors; with bounds that no client can reach beside them.
//
//	go run ./cmd/mlsim -list
//	go run ./cmd/mlsim -scenario fits-70,tight-70 -seeds 5
//	go run ./cmd/mlsim -scenario all -trace requests.csv -html report.html
//	go run ./cmd/mlsim -scenario resident-70 -clients 32 -reports stream:50ms -policies affinity,prequal
//	go run ./cmd/mlsim -servers 100 -slots 6 -models 300 -rho 0.6 -load 12s
//	go run ./cmd/mlsim -goals -seeds 5
//
// The same arguments print the same bytes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage): // the flag package has said it
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "mlsim:", err)
		os.Exit(1)
	}
}

// errUsage says that the arguments make no sense, and that this has been said.
var errUsage = errors.New("wrong usage")

// run does what the arguments say.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if f.list {
		return list(stdout)
	}
	if f.goals {
		return checkGoals(ctx, f, goals(), stdout, stderr)
	}
	cells, err := f.cells(stderr)
	if err != nil {
		return err
	}
	if f.html != "" { // a place that cannot be written to is known before the runs, not after
		if err := touch(f.html); err != nil {
			return err
		}
	}
	if err := runAll(ctx, cells, f.seeds, newProgress(stderr)); err != nil {
		return err
	}
	r := newReport(cells, f.seeds)
	if f.html != "" {
		if err := r.writeHTMLFile(f.html); err != nil {
			return err
		}
	}
	if f.json {
		return r.writeJSON(stdout)
	}
	return r.writeTable(stdout)
}

func touch(path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	return file.Close()
}

// Command benchpick runs the benchmarks of package peers several times and prints one table: what each policy costs, what each
// library's circuit breaker does, or what it takes to hear of servers how they are, and how ours does against its goals.
//
// A repetition runs all of them one after another, so that whatever else the machine does hits them alike. Numbers are
// medians over the repetitions; ratios and differences are taken within a repetition first.
//
//	go run ./benchpick [-count 5] [-table pick]
//	go run ./benchpick [-count 5] -table breaker
//	go run ./benchpick [-count 5] -table health
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"time"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("benchpick: ")
	count := flag.Int("count", 5, "repetitions, at least 1")
	name := flag.String("table", "pick", "what to measure: pick, breaker or health")
	flag.Parse()
	t, ok := tables[*name]
	if !ok {
		log.Printf("-table is %q, want pick, breaker or health", *name)
		flag.Usage()
		os.Exit(2)
	}
	if *count < 1 || flag.NArg() > 0 {
		log.Printf("-count is %d and the arguments are %q, want at least 1 and none", *count, flag.Args())
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, t, os.Stdout, os.Stderr, *count); err != nil {
		log.Fatal(err)
	}
}

// run runs everything of a table count times, with progress on one writer and the table on the other.
func run(ctx context.Context, t *table, out, progress io.Writer, count int) error {
	dir, err := os.MkdirTemp("", "benchpick")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "peers.test")
	fmt.Fprintln(progress, "compiling ...")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-o", binary, "github.com/mlbalancer/mlbalancer/integration/peers")
	build.Stderr = progress
	if err := build.Run(); err != nil {
		return fmt.Errorf("the benchmarks do not compile: %w", err)
	}
	var all results
	start := time.Now()
	for i := range count {
		fmt.Fprintf(progress, "repetition %d of %d, %v so far\n", i+1, count, time.Since(start).Round(time.Second))
		rep := repetition{}
		for _, g := range t.groups {
			cmd := exec.CommandContext(ctx, binary, "-test.run=^$", "-test.bench="+g.pattern, "-test.benchtime="+g.benchtime)
			cmd.Env = append(os.Environ(), "GRPC_RING_HASH_CAP=150000") // ring_hash is measured with as many points as ours, too
			cmd.Stderr = progress
			stdout, err := cmd.Output()
			if err != nil {
				return fmt.Errorf("%s: %w\n%s", g.pattern, err, stdout)
			}
			if err := rep.add(string(stdout)); err != nil {
				return fmt.Errorf("%s: %w", g.pattern, err)
			}
		}
		all = append(all, rep)
	}
	fmt.Fprintf(out, "%s/%s, %d cores, %s, %d repetitions in %v; medians\n\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(),
		runtime.Version(), count, time.Since(start).Round(time.Second))
	return t.print(out, all)
}

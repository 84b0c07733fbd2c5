package main

import (
	"context"
	"runtime"
	"sync"

	"github.com/mlbalancer/mlbalancer/internal/sim"
)

// job is one run.
type job struct {
	cell *cell
	seed int // from 1
}

// runAll runs all cells with the seeds 1 to seeds, as many at once as there are processors, and fills in their figures. It
// returns ctx's error if that ends before they have.
func runAll(ctx context.Context, cells []*cell, seeds int, p *progress) error {
	jobs := make(chan job)
	results := make(map[*cell][]*sim.Result, len(cells))
	left := make(map[*cell]int, len(cells))
	for _, c := range cells {
		results[c], left[c] = make([]*sim.Result, seeds), seeds
	}
	var (
		mu     sync.Mutex // guards results, left, failed and p
		failed error
		wg     sync.WaitGroup
	)
	p.begin(len(cells) * seeds)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for j := range jobs {
				r, err := sim.Run(j.cell.scenario, j.cell.kind.Name, uint64(j.seed))
				mu.Lock()
				if err != nil {
					failed = err
				} else if results[j.cell][j.seed-1] = r; left[j.cell] == 1 {
					j.cell.figures = sim.Fold(j.cell.scenario, results[j.cell])
					delete(results, j.cell) // a run of hours has millions of latencies
				}
				left[j.cell]--
				p.step(j.cell)
				mu.Unlock()
			}
		})
	}
feed:
	for _, c := range cells {
		for seed := 1; seed <= seeds; seed++ {
			select {
			case jobs <- job{c, seed}:
			case <-ctx.Done():
				break feed
			}
		}
	}
	close(jobs)
	wg.Wait()
	p.end()
	if failed != nil {
		return failed
	}
	return ctx.Err()
}

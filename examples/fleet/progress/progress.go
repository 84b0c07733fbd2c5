// Package progress shows how far a comparison is: a bar where there is a terminal, else a line for each replay.
package progress

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/mlbalancer/mlbalancer/examples/fleet/stats"
)

// Display writes progress. It is not safe for concurrent use.
type Display struct {
	w     io.Writer
	bar   bool
	label string
}

// New returns a Display that writes to w; bar says whether w is a terminal, on which a line can be written over.
func New(w io.Writer, bar bool) *Display { return &Display{w: w, bar: bar} }

// Begin says that the n-th of total replays starts.
func (d *Display) Begin(n, total int, policy string, seed uint64) {
	d.label = fmt.Sprintf("[%d/%d] %-20s seed %d", n+1, total, policy, seed)
	d.Update(0)
}

// Update says how far it is, from 0 to 1.
func (d *Display) Update(done float64) {
	const width = 30
	if d.bar {
		full := int(done*width + .5)
		fmt.Fprintf(d.w, "\r%s  %s%s %3.0f %%", d.label, strings.Repeat("█", full), strings.Repeat("░", width-full), 100*done)
	}
}

// End says what the replay came to.
func (d *Display) End(f stats.Figures, wall time.Duration) {
	if d.bar {
		fmt.Fprint(d.w, "\r\x1b[K") // erases the bar
	}
	fmt.Fprintf(d.w, "%s  %d calls, %d errors, p99 %.0f ms, %d cold loads, in %.1f s\n",
		d.label, f.Calls, f.Errors, f.P99, f.ColdLoads, wall.Seconds())
	if f.LateP99 > f.P50/4 {
		fmt.Fprintf(d.w, "        calls were sent up to %.0f ms late (p99, model time): the machine is too busy for this speed\n", f.LateP99)
	}
}

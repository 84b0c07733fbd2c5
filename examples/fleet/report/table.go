package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/mlbalancer/mlbalancer/examples/fleet/stats"
)

// column is one figure of a table.
type column struct {
	title string
	value func(f *stats.Figures) float64
	show  func(v float64) string
	// better says that a lower value is better (-1), a higher one (1), or that neither is (0).
	better int
}

var columns = []column{
	{"calls", func(f *stats.Figures) float64 { return float64(f.Calls) }, grouped, 0},
	{"errors", func(f *stats.Figures) float64 { return float64(f.Errors) }, grouped, -1},
	{"p50 ms", func(f *stats.Figures) float64 { return f.P50 }, grouped, -1},
	{"p95 ms", func(f *stats.Figures) float64 { return f.P95 }, grouped, -1},
	{"p99 ms", func(f *stats.Figures) float64 { return f.P99 }, grouped, -1},
	{"p99.9 ms", func(f *stats.Figures) float64 { return f.P999 }, grouped, -1},
	{"cold loads", func(f *stats.Figures) float64 { return float64(f.ColdLoads) }, grouped, -1},
	{"hit rate", func(f *stats.Figures) float64 { return f.HitRate }, percent, 1},
	{"peak/mean load", func(f *stats.Figures) float64 { return f.PeakToMeanLoad }, ratio, -1},
}

// grouped writes a number without decimals, with a comma before every three digits.
func grouped(v float64) string {
	digits := strconv.FormatFloat(v, 'f', 0, 64)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// percent writes a share such that only a whole one is 100 %.
func percent(v float64) string {
	s := strconv.FormatFloat(100*v, 'f', 1, 64)
	if s == "100.0" && v < 1 {
		s = "99.9"
	}
	return s + " %"
}

func ratio(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }

// WriteTable writes the figures for a reader at a terminal.
func (r *Report) WriteTable(w io.Writer) error {
	rows := [][]string{{"policy"}}
	for _, c := range columns {
		rows[0] = append(rows[0], c.title)
	}
	for i := range r.Policies {
		p := &r.Policies[i]
		row := []string{p.Name}
		for _, c := range columns {
			row = append(row, c.show(c.value(&p.Figures)))
		}
		rows = append(rows, row)
	}
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], len(cell))
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", r.Setup.Sentence())
	for _, row := range rows {
		fmt.Fprintf(&b, "%-*s", width[0], row[0])
		for i, cell := range row[1:] {
			fmt.Fprintf(&b, "   %*s", width[i+1], cell)
		}
		b.WriteByte('\n')
	}
	if note := r.faultNote(); note != "" {
		fmt.Fprintf(&b, "\n%s\n", note)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// faultNote says, where callers ran out of time during faults, that the faults need not be why; else it is empty.
func (r *Report) faultNote() string {
	late := func(p Policy) bool { return p.ErrorCodes["DeadlineExceeded"] > 0 }
	if len(r.Setup.Faults) == 0 || !slices.ContainsFunc(r.Policies, late) {
		return ""
	}
	return "Errors include calls that ran out of time, which happens without faults too where a server has too much to do: -rho .3 -slots 8 keeps them apart."
}

// Sentence describes the set-up in a line.
func (s *Setup) Sentence() string {
	text := fmt.Sprintf("%d servers of %d workers with memory for %d models, load %.3g, %s to load a model, %d clients",
		s.Servers, s.Workers, s.Slots, s.Rho, seconds(s.Load/1000), s.Clients)
	if s.Signals != "" {
		text += ", signals " + strings.ReplaceAll(s.Signals, ",", " ")
	}
	if len(s.Faults) > 0 {
		faults := make([]string, len(s.Faults))
		for i, f := range s.Faults {
			faults[i] = f.Fault
		}
		text += ", faults " + strings.Join(faults, ", ")
	}
	if s.NoRetry {
		text += ", no retries"
	}
	text += fmt.Sprintf("; %s of model time measured", seconds(math.Round(s.Measured/100)/10))
	if len(s.Seeds) > 1 {
		text += fmt.Sprintf(", medians of %d seeds", len(s.Seeds))
	}
	return text
}

// best reports for each policy whether its value in a column, as it is shown, is the best, and not the only one there is.
func (r *Report) best(c column) []bool {
	best := make([]bool, len(r.Policies))
	if c.better == 0 {
		return best
	}
	values, shown := make([]float64, len(best)), make([]string, len(best))
	for i := range r.Policies {
		v := c.value(&r.Policies[i].Figures)
		values[i], shown[i] = v*float64(c.better), c.show(v)
	}
	top := shown[slices.Index(values, slices.Max(values))]
	for i, s := range shown {
		best[i] = s == top
	}
	if !slices.Contains(best, false) {
		clear(best)
	}
	return best
}

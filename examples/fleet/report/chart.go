package report

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/mlbalancer/mlbalancer/examples/fleet/stats"
)

// chart is a line chart, laid out in pixels for the template.
type chart struct {
	Label          string // what it shows, for readers who do not see it
	Width, Height  float64
	Left, Top      float64 // corner of the plot
	Right, Bottom  float64
	XTitle, YTitle string
	XTicks, YTicks []tick
	Lines          []line
	Bands          []band
	Limit          *tick // a value on the X or Y axis that stands out
	LimitOnX       bool
}

type line struct {
	Name  string
	Index int // of the policy, which decides the colour
	Path  string
	Ours  bool
}

// band is a stretch of the X axis.
type band struct {
	X, Width float64
	Label    string
}

func newChart(label string) chart {
	return chart{Label: label, Width: 960, Height: 400, Left: 76, Top: 16, Right: 944, Bottom: 346}
}

// MidX and MidY are the middle of the plot.
func (c chart) MidX() float64 { return (c.Left + c.Right) / 2 }

// MidY is the middle of the plot.
func (c chart) MidY() float64 { return (c.Top + c.Bottom) / 2 }

// PlotWidth is the width of the plot.
func (c chart) PlotWidth() float64 { return c.Right - c.Left }

// PlotHeight is the height of the plot.
func (c chart) PlotHeight() float64 { return c.Bottom - c.Top }

// distribution is the chart of the share of calls over the latency that they at least took.
func (r *Report) distribution() chart {
	c := newChart("Share of calls that took longer than a given latency, by policy")
	c.XTitle, c.YTitle = "latency, model time (log scale)", "calls that took at least as long (log scale)"
	deadline := r.Setup.Deadline / 1000
	x := axis{log: true, min: deadline / 10, max: deadline, from: c.Left, to: c.Right - 8}
	y := axis{log: true, min: .1, max: 1, from: c.Bottom, to: c.Top}
	for _, p := range r.Policies {
		for _, point := range p.Plots.Exceedance {
			if point.Y <= .98 {
				x.min = min(x.min, niceBelow(max(point.X, deadline/1e4)))
				x.max = max(x.max, point.X)
			}
			y.min = min(y.min, niceBelow(point.Y))
		}
	}
	c.XTicks, c.YTicks = x.ticks(seconds), y.ticks(share)
	c.Limit, c.LimitOnX = &tick{At: x.at(deadline), Label: "callers' deadline"}, true
	c.draw(r, x, y, func(p Plots) []stats.Point { return p.Exceedance })
	return c
}

// overTime is the chart of the 99th percentile over time.
func (r *Report) overTime() chart {
	c := newChart("99th percentile of latency over time, by policy")
	c.XTitle, c.YTitle = "time since the measurement began, model time", "p99 latency, model time (log scale)"
	measured, deadline := r.Setup.Measured/1000, r.Setup.Deadline/1000
	x := axis{min: 0, max: measured, from: c.Left, to: c.Right}
	y := axis{log: true, min: deadline / 10, max: deadline, from: c.Bottom, to: c.Top + 10}
	for _, p := range r.Policies {
		for _, point := range p.Plots.P99 {
			y.min = min(y.min, niceBelow(max(point.Y, deadline/1e4)))
			y.max = max(y.max, point.Y)
		}
	}
	c.XTicks, c.YTicks = x.ticks(seconds), y.ticks(seconds)
	c.Limit = &tick{At: y.at(deadline), Label: "callers' deadline"}
	for _, f := range r.Setup.Faults {
		from, to := x.at(f.From*measured), x.at(min(f.To, 1)*measured)
		c.Bands = append(c.Bands, band{X: from, Width: max(to-from, 2), Label: f.Fault})
	}
	c.draw(r, x, y, func(p Plots) []stats.Point { return p.P99 })
	return c
}

// draw adds a line for each policy, ours last, so that it lies on top.
func (c *chart) draw(r *Report, x, y axis, curve func(Plots) []stats.Point) {
	for _, ours := range []bool{false, true} {
		for i, p := range r.Policies {
			if isOurs(p.Name) != ours {
				continue
			}
			var path strings.Builder
			for j, point := range curve(p.Plots) {
				command := 'L'
				if j == 0 {
					command = 'M'
				}
				fmt.Fprintf(&path, "%c%.1f %.1f", command, x.at(point.X), y.at(point.Y))
			}
			c.Lines = append(c.Lines, line{Name: p.Name, Index: i % numColours, Path: path.String(), Ours: ours})
		}
	}
}

// isOurs reports whether a policy is the one that the report is about.
func isOurs(name string) bool { return strings.HasPrefix(name, "model_aware") }

// numColours is the number of colours that the style sheet has for lines.
const numColours = 6

// P99Windows is a good number of windows for Plots.P99: enough calls in each for a 99th percentile, and at most 48.
func P99Windows(calls int, measured time.Duration) int {
	return int(min(48, max(1, float64(calls)/300), max(1, math.Ceil(measured.Seconds()))))
}

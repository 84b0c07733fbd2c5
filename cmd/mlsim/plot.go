package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/mlbalancer/mlbalancer/internal/sim"
)

// colours is the number of colours that the style sheet has.
const colours = 10

// The plot's sides in pixels.
const (
	plotWidth, plotHeight = 900, 340
	plotLeft, plotRight   = 60, plotWidth - 10
	plotTop, plotBottom   = 10, plotHeight - 46
)

// bars is a bar chart with a logarithmic axis.
type bars struct {
	Title  string
	Height int
	Bars   []bar
	Ticks  []tick
	Bottom int
}

type bar struct {
	Name     string
	Colour   int
	Ours     bool
	Y, TextY int
	X, Width float64
	TextX    float64
	Value    string
	NameX    int
}

// tick is a mark on an axis.
type tick struct {
	At    float64
	Label string
}

const (
	barHeight = 22
	barLeft   = 190
	barRight  = plotWidth - 90
)

// p99Bars is the chart of the 99th percentiles.
func (s *scenarioReport) p99Bars() bars {
	return s.barChart("99th percentile of latency, seconds (log scale)", 0.1,
		func(f *sim.Figures) float64 { return f.P99 }, func(v float64) string { return fmt.Sprintf("%.2f", v) })
}

// loadBars is the chart of the cold loads.
func (s *scenarioReport) loadBars() bars {
	return s.barChart("cold loads, all seeds (log scale)", 1,
		func(f *sim.Figures) float64 { return float64(f.Loads) }, func(v float64) string { return fmt.Sprintf("%.0f", v) })
}

// barChart draws values on a logarithmic axis that starts at low; what is below has no bar.
func (s *scenarioReport) barChart(title string, low float64, value func(*sim.Figures) float64, show func(float64) string) bars {
	high := 10 * low
	for i := range s.Policies {
		high = max(high, value(s.Policies[i].Figures))
	}
	at := logAxis(low, high, barLeft, barRight)
	bottom := barHeight * len(s.Policies)
	b := bars{Title: title, Bottom: bottom, Height: bottom + 24, Ticks: decades(low, high, at)}
	for i := range s.Policies {
		p := &s.Policies[i]
		v := value(p.Figures)
		width := 0.0
		if v > low {
			width = at(v) - barLeft
		}
		b.Bars = append(b.Bars, bar{
			Name: p.Name, Colour: i % colours, Ours: p.Role == "ours", Y: barHeight*i + 3, TextY: barHeight*i + 15,
			X: barLeft, Width: width, TextX: barLeft + width + 5, NameX: barLeft - 8, Value: show(v),
		})
	}
	return b
}

// plot is a line chart.
type plot struct {
	Title, XTitle, YTitle    string
	Width, Height            int
	Left, Right, Top, Bottom int
	XTicks, YTicks           []tick
	Lines                    []line
}

type line struct {
	Name   string
	Colour int
	Ours   bool
	Path   string
}

func newPlot(title, x, y string) plot {
	return plot{
		Title: title, XTitle: x, YTitle: y, Width: plotWidth, Height: plotHeight,
		Left: plotLeft, Right: plotRight, Top: plotTop, Bottom: plotBottom,
	}
}

// distribution is the chart of the share of calls over the latency that they at least took.
func (s *scenarioReport) distribution() plot {
	p := newPlot("Share of calls that took longer", "latency, seconds (log scale)", "share of calls (log scale)")
	x := logAxis(.05, s.Setup.Deadline, plotLeft, plotRight)
	y := logAxis(.001, 1, plotBottom, plotTop)
	p.XTicks, p.YTicks = decades(.05, s.Setup.Deadline, x), decades(.001, 1, y)
	p.draw(s, x, y, func(f *sim.Figures) []sim.Point { return f.Exceedance })
	return p
}

// overTime is the chart of the 99th percentile over time.
func (s *scenarioReport) overTime() plot {
	p := newPlot("99th percentile over time", "arrival, seconds since the measurement began", "p99, seconds (log scale)")
	x := func(v float64) float64 { return plotLeft + v/s.Setup.Measured*(plotRight-plotLeft) }
	y := logAxis(.1, s.Setup.Deadline, plotBottom, plotTop)
	for i := range 7 {
		v := s.Setup.Measured / 6 * float64(i)
		p.XTicks = append(p.XTicks, tick{x(v), fmt.Sprintf("%.0f", v)})
	}
	p.YTicks = decades(.1, s.Setup.Deadline, y)
	p.draw(s, x, y, func(f *sim.Figures) []sim.Point { return f.OverTime })
	return p
}

// draw adds a line for each policy, ours last, so that it lies on top.
func (p *plot) draw(s *scenarioReport, x, y func(float64) float64, curve func(*sim.Figures) []sim.Point) {
	for _, ours := range []bool{false, true} {
		for i := range s.Policies {
			policy := &s.Policies[i]
			if (policy.Role == "ours") != ours {
				continue
			}
			var path strings.Builder
			for j, point := range curve(policy.Figures) {
				command := 'L'
				if j == 0 {
					command = 'M'
				}
				fmt.Fprintf(&path, "%c%.1f %.1f", command, x(point.X), y(point.Y))
			}
			p.Lines = append(p.Lines, line{Name: policy.Name, Colour: i % colours, Ours: ours, Path: path.String()})
		}
	}
}

// logAxis returns where values stand on a logarithmic axis from low to high; those outside stand at its ends.
func logAxis(low, high, from, to float64) func(float64) float64 {
	return func(v float64) float64 {
		v = min(max(v, low), high)
		return from + math.Log(v/low)/math.Log(high/low)*(to-from)
	}
}

// decades returns marks at 1, 2 and 5 times the powers of ten from low to high.
func decades(low, high float64, at func(float64) float64) []tick {
	var ticks []tick
	for e := math.Floor(math.Log10(low)); e <= math.Log10(high); e++ {
		for _, k := range []float64{1, 2, 5} {
			v := k * math.Pow(10, e)
			if v >= low*.999 && v <= high*1.001 && (k == 1 || high/low < 1000) {
				ticks = append(ticks, tick{at(v), fmt.Sprintf("%g", math.Round(v*1e6)/1e6)})
			}
		}
	}
	return ticks
}

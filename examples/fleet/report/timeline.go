package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/mlbalancer/mlbalancer/examples/fleet/breakers"
)

// timeline is the chart of what the breakers of one policy did over time, laid out in pixels: a row for each server and for each model on a
// server whose breaker ever changed, with a lane for each channel.
type timeline struct {
	Policy         string
	Label          string // for readers who do not see it
	Width, Height  float64
	Top, Bottom    float64
	MidX           float64
	LaneHeight     float64
	XTicks         []tick
	Bands          []band
	Rows           []timelineRow
	Spans          []span
	Lanes          int // channels that are shown, of Channels
	Channels       int
	Hidden         int // rows that are not shown
	Totals         breakers.Totals
	Changes        []changeRow
	HiddenChanges  int
	ModelTrips     int
	PlotX, PlotEnd float64
}

// timelineRow is a row's name and its lanes, which are closed where no span is.
type timelineRow struct {
	Name  string
	MidY  float64
	Lanes []float64 // where each begins
}

// span is a time in which a breaker was not closed, or its endpoint draining.
type span struct {
	X, Y, Width float64
	Class       string
	Title       string
}

// changeRow is one line of the table of changes.
type changeRow struct{ Time, Channel, Breaker, From, To, Reason string }

// PlotWidth is the width of the lanes.
func (t timeline) PlotWidth() float64 { return t.PlotEnd - t.PlotX }

const (
	maxTimelineRows = 40
	maxLanes        = 8
	maxChanges      = 200
)

// guarded is what one breaker guards on all channels: an endpoint, or a model on it.
type guarded struct {
	server int
	model  string
}

func (g guarded) compare(o guarded) int {
	return cmp.Or(cmp.Compare(min(len(g.model), 1), min(len(o.model), 1)), cmp.Compare(g.server, o.server), cmp.Compare(g.model, o.model))
}

func (g guarded) name() string {
	if g.model == "" {
		return fmt.Sprintf("server %d", g.server)
	}
	return fmt.Sprintf("%d: %s", g.server, shorten(g.model))
}

// timelines returns the charts of the policies that have breakers.
func (r *Report) timelines() []timeline {
	var all []timeline
	for _, p := range r.Policies {
		if p.Breakers != nil {
			all = append(all, r.timeline(p.Name, p.Breakers))
		}
	}
	return all
}

func (r *Report) timeline(policy string, record *breakers.Record) timeline {
	const top, gap = 8., 8.
	t := timeline{Policy: policy, Label: "States of circuit breakers over time under " + policy,
		Width: 960, Top: top, PlotX: 116, PlotEnd: 944, Totals: record.Totals,
		Channels: r.Setup.Clients, Lanes: min(r.Setup.Clients, maxLanes)}
	t.LaneHeight = max(4, 20/float64(t.Lanes))
	t.MidX = (t.PlotX + t.PlotEnd) / 2
	x := axis{max: r.Setup.Measured, from: t.PlotX, to: t.PlotEnd}
	t.XTicks = axis{max: r.Setup.Measured / 1000, from: t.PlotX, to: t.PlotEnd}.ticks(seconds)

	rows := guardedBy(record, r.Setup.Servers)
	t.Hidden = max(0, len(rows)-maxTimelineRows)
	at, y := make(map[guarded]float64), top
	for _, g := range rows[:len(rows)-t.Hidden] {
		row := timelineRow{Name: g.name(), MidY: y + float64(t.Lanes)*t.LaneHeight/2}
		for lane := range t.Lanes {
			row.Lanes = append(row.Lanes, y+float64(lane)*t.LaneHeight)
		}
		t.Rows = append(t.Rows, row)
		at[g] = y
		y += float64(t.Lanes)*t.LaneHeight + gap
	}
	t.Bottom = y - gap/2
	t.Height = t.Bottom + 56
	for _, f := range r.Setup.Faults {
		from, to := x.at(f.From*r.Setup.Measured), x.at(min(f.To, 1)*r.Setup.Measured)
		t.Bands = append(t.Bands, band{X: from, Width: max(to-from, 2), Label: f.Fault})
	}

	add := func(g guarded, channel int, class, title string, from, to float64) {
		y, shown := at[g]
		if !shown || channel >= t.Lanes || to <= 0 || from >= r.Setup.Measured {
			return
		}
		begin, end := x.at(from), x.at(to)
		t.Spans = append(t.Spans, span{X: begin, Y: y + float64(channel)*t.LaneHeight, Width: max(end-begin, 1.5), Class: class,
			Title: fmt.Sprintf("%s, channel %d, %.4g s to %.4g s: %s", g.name(), channel, from/1000, min(to, r.Setup.Measured)/1000, title)})
	}
	type lane struct {
		guarded
		channel int
	}
	since := make(map[lane]breakers.Change) // what each breaker that is not closed changed to
	end := func(l lane, at float64) {
		if c, ok := since[l]; ok && c.To != "closed" {
			add(l.guarded, l.channel, c.To, c.To+", "+c.Reason, c.At, at)
		}
	}
	for _, c := range record.Changes {
		l := lane{guarded{c.Server, c.Model}, c.Channel}
		end(l, c.At)
		since[l] = c
		t.note(c)
	}
	for l := range since {
		end(l, r.Setup.Measured)
	}
	slices.SortFunc(t.Spans, func(a, b span) int { return cmp.Or(cmp.Compare(a.Y, b.Y), cmp.Compare(a.X, b.X)) })
	for _, d := range record.Drains {
		add(guarded{server: d.Server}, d.Channel, "draining", "draining", d.From, d.To)
	}
	return t
}

// note adds a change to the table.
func (t *timeline) note(c breakers.Change) {
	if c.Model != "" && c.From == "closed" {
		t.ModelTrips++
	}
	if len(t.Changes) == maxChanges {
		t.HiddenChanges++
		return
	}
	t.Changes = append(t.Changes, changeRow{
		Time: fmt.Sprintf("%.2f s", c.At/1000), Channel: fmt.Sprint(c.Channel), Breaker: guarded{c.Server, c.Model}.name(),
		From: c.From, To: c.To, Reason: c.Reason,
	})
}

// guardedBy returns what has a row: every server, or only those with something to show where there are many, and then the models on servers.
func guardedBy(record *breakers.Record, servers int) []guarded {
	const few = 16
	all := make(map[guarded]bool)
	if servers <= few {
		for s := range servers {
			all[guarded{server: s}] = true
		}
	}
	for _, c := range record.Changes {
		all[guarded{c.Server, c.Model}] = true
	}
	for _, d := range record.Drains {
		all[guarded{server: d.Server}] = true
	}
	return slices.SortedFunc(maps.Keys(all), guarded.compare)
}

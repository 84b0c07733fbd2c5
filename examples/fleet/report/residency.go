package report

import (
	"fmt"
	"strconv"
)

// residency is the map of which models were in which servers' memory: one panel for each policy, laid out in pixels.
type residency struct {
	Label         string
	Width, Height float64
	Rows          []tick // the models
	Panels        []panel
	CellHeight    float64
	PanelHeight   float64
	Hidden        int // how many models have no row
	Shown         int
}

type panel struct {
	Name    string
	Note    string
	Index   int
	X       float64
	MidX    float64
	Width   float64
	Columns []tick // the servers
	Cells   []cell
	Bottom  float64
}

type cell struct {
	X, Y, Width float64
	Share       float64
	Title       string
}

// maxRows is how many models the map shows.
const maxRows = 40

func (r *Report) residency() residency {
	const left, right, top, gap, rowHeight = 136., 8., 44., 22., 16.
	m := residency{Label: "Share of time that each model was in each server's memory, by policy", Width: 960, CellHeight: rowHeight - 2}
	if len(r.Policies) == 0 || len(r.Policies[0].Plots.Models) == 0 {
		return m
	}
	first := r.Policies[0].Plots
	m.Shown = min(len(first.Models), maxRows)
	m.Hidden = len(first.Models) - m.Shown
	for i, name := range first.Models[:m.Shown] {
		m.Rows = append(m.Rows, tick{At: top + float64(i)*rowHeight + rowHeight - 5, Label: fmt.Sprintf("%s %s", shorten(name), percent(first.Share[i]))})
	}
	bottom := top + float64(m.Shown)*rowHeight
	m.PanelHeight, m.Height = bottom-top, bottom+40
	width := (m.Width-left-right+gap)/float64(len(r.Policies)) - gap
	for i, p := range r.Policies {
		at := panel{Name: p.Name, Index: i % numColours, X: left + float64(i)*(width+gap), Width: width, Bottom: bottom}
		at.MidX = at.X + width/2
		columnWidth := width / float64(r.Setup.Servers)
		held := 0.
		for model, servers := range p.Plots.Resident {
			for server, share := range servers {
				held += share
				if model >= m.Shown || share < .005 {
					continue
				}
				at.Cells = append(at.Cells, cell{
					X: at.X + float64(server)*columnWidth + 1, Y: top + float64(model)*rowHeight + 1, Width: max(1, columnWidth-2),
					Share: share,
					Title: fmt.Sprintf("%s on server %d: %s of the time", p.Plots.Models[model], server, percent(share)),
				})
			}
		}
		at.Note = fmt.Sprintf("%.1f of %d slots held", held, r.Setup.Servers*r.Setup.Slots)
		every := 1
		for columnWidth*float64(every) < 14 {
			every++
		}
		for s := 0; s < r.Setup.Servers; s += every {
			at.Columns = append(at.Columns, tick{At: at.X + (float64(s)+.5)*columnWidth, Label: strconv.Itoa(s)})
		}
		m.Panels = append(m.Panels, at)
	}
	return m
}

// shorten keeps a model's name within its column.
func shorten(name string) string {
	const longest = 12
	if r := []rune(name); len(r) > longest {
		return string(r[:longest-1]) + "…"
	}
	return name
}

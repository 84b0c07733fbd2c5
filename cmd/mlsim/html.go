package main

import (
	_ "embed"
	"html/template"
	"io"
	"os"
)

//go:embed page.html
var pageText string

//go:embed style.css
var style string

var page = template.Must(template.New("page").Parse(pageText))

// section is one scenario on the page.
type section struct {
	scenarioReport
	Sentence string
	Titles   []string
	Rows     []pageRow
	Bars     []bars
	Plots    []plot
}

// pageRow is a policy's line in a section's table.
type pageRow struct {
	Colour int
	Ours   bool
	Cells  []string
}

// writeHTMLFile writes the report as a page into a file.
func (r *report) writeHTMLFile(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := r.writeHTML(file); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}

// writeHTML writes the report as one page that needs no other file.
func (r *report) writeHTML(w io.Writer) error {
	sections := make([]section, len(r.Scenarios))
	for i := range r.Scenarios {
		s := &r.Scenarios[i]
		sec := section{scenarioReport: *s, Sentence: s.Setup.sentence(), Titles: s.titles()}
		for j := range s.Policies {
			p := &s.Policies[j]
			sec.Rows = append(sec.Rows, pageRow{Colour: j % colours, Ours: p.Role == "ours", Cells: s.row(p)})
		}
		sec.Bars = []bars{s.p99Bars(), s.loadBars()}
		sec.Plots = []plot{s.distribution(), s.overTime()}
		sections[i] = sec
	}
	return page.Execute(w, map[string]any{"Style": template.CSS(style), "Sections": sections, "Notes": r.notes()})
}

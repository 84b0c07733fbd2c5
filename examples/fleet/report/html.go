package report

import (
	_ "embed"
	"html/template"
	"io"
)

//go:embed page.html
var pageText string

//go:embed style.css
var style string

var page = template.Must(template.New("report").Parse(pageText))

// tableRow is a policy's line in the page's table.
type tableRow struct {
	Name  string
	Index int
	Ours  bool
	Cells []tableCell
	Late  string
}

type tableCell struct {
	Text string
	Best bool
}

// WriteHTML writes the report as one page that needs no other file.
func (r *Report) WriteHTML(w io.Writer) error {
	rows := make([]tableRow, len(r.Policies))
	titles := make([]string, len(columns))
	for i, p := range r.Policies {
		rows[i] = tableRow{Name: p.Name, Index: i % numColours, Ours: isOurs(p.Name), Late: grouped(p.LateP99)}
	}
	for j, c := range columns {
		titles[j] = c.title
		best := r.best(c)
		for i := range rows {
			rows[i].Cells = append(rows[i].Cells, tableCell{Text: c.show(c.value(&r.Policies[i].Figures)), Best: best[i]})
		}
	}
	return page.Execute(w, map[string]any{
		"Report":       r,
		"Style":        template.CSS(style),
		"Sentence":     r.Setup.Sentence(),
		"Titles":       titles,
		"Rows":         rows,
		"Distribution": r.distribution(),
		"OverTime":     r.overTime(),
		"FaultNote":    r.faultNote(),
		"Timelines":    r.timelines(),
		"Residency":    r.residency(),
		"Deadline":     seconds(r.Setup.Deadline / 1000),
		"Service":      seconds(r.Setup.Service / 1000),
		"Load":         seconds(r.Setup.Load / 1000),
		"Several":      len(r.Setup.Seeds) > 1,
	})
}

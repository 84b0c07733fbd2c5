package main

import (
	"fmt"
	"io"
	"math"
	"strings"
)

// table is what is measured in one run, and how it is shown.
type table struct {
	groups   []group
	columns  []column
	legend   string
	measures []measure
}

// group is a set of benchmarks that take about equally long.
type group struct {
	pattern   string // of go test -bench
	benchtime string
}

// column is the label of rows in benchmarks' names, and what the table calls it.
type column struct{ label, head string }

// measure is one line of the table: a number for each column that has one, and what ours is to reach in it.
type measure struct {
	name  string
	value value
	goals []goal
}

// tables are all tables, by name.
var tables = map[string]*table{"pick": &pickTable, "breaker": &breakerTable, "health": &healthTable}

// print prints all measures with their goals, and how many of these were met.
func (t *table) print(out io.Writer, rs results) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%-30s", "")
	for _, c := range t.columns {
		fmt.Fprintf(&b, "%12s", c.head)
	}
	b.WriteString("\n")
	var met, goals int
	for _, m := range t.measures {
		line := fmt.Sprintf("%-30s", m.name)
		for _, c := range t.columns {
			line += fmt.Sprintf("%12s", cell(rs.median(func(r repetition) float64 { return m.value(r, c.label) })))
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
		for _, g := range m.goals {
			got, ok := g.judge(rs)
			verdict := "MISSED"
			if ok {
				verdict = "met"
				met++
			}
			goals++
			fmt.Fprintf(&b, "  %-6s  %s: %s\n", verdict, g.text, got)
		}
	}
	fmt.Fprintf(&b, "\n%s\n%d of %d goals met\n", t.legend, met, goals)
	_, err := io.WriteString(out, b.String())
	return err
}

// cell formats a number with three digits or so; what was not measured is empty.
func cell(v float64) string {
	switch {
	case math.IsNaN(v):
		return ""
	case v == math.Trunc(v) || v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

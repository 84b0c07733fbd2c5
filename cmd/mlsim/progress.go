package main

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// progress shows how far the runs are where there is a terminal. It is not safe for concurrent use.
type progress struct {
	w           io.Writer // nil for none
	done, total int
}

// newProgress returns a progress that is shown on w if that is a terminal.
func newProgress(w io.Writer) *progress {
	if file, ok := w.(*os.File); ok {
		if info, err := file.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			return &progress{w: w}
		}
	}
	return &progress{}
}

func (p *progress) begin(total int) { p.done, p.total = 0, total }

// step says that a run of a cell has ended.
func (p *progress) step(c *cell) {
	p.done++
	if p.w == nil {
		return
	}
	const width = 30
	full := p.done * width / p.total
	fmt.Fprintf(p.w, "\r\x1b[K%s%s %d/%d %s %s", strings.Repeat("█", full), strings.Repeat("░", width-full), p.done, p.total,
		c.scenario.ID, c.kind.Name)
}

func (p *progress) end() {
	if p.w != nil {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}

package monitor

import "github.com/mlbalancer/mlbalancer/health"

// batch is reports of one source put together into one: of each thing what was said of it last. It is used again and again.
type batch struct {
	report health.Report
	at     map[string]int // where in report.Models a name stands; made when a second report comes
	n      int            // how many reports are in it
	merged int            // how many models were merged
}

func (b *batch) empty() bool { return b.n == 0 }

// clear empties the batch. It keeps its memory, but no names.
func (b *batch) clear() {
	clear(b.report.Models)
	clear(b.at)
	b.report = health.Report{Models: b.report.Models[:0]}
	b.n, b.merged = 0, 0
}

// add adds a report, and keeps nothing of it but the names.
func (b *batch) add(r *health.Report) {
	if b.n++; b.n == 1 || r.Complete {
		b.models(r.Models)
	} else {
		b.merge(r.Models)
	}
	old := b.report
	b.report = *r
	b.report.Models, b.report.Complete = old.Models, r.Complete || old.Complete
	if r.Server == health.ServerUnknown {
		b.report.Server = old.Server
	}
	if r.Load.Has == 0 {
		b.report.Load = old.Load
	}
	if r.OnDemand == health.Unknown {
		b.report.OnDemand = old.OnDemand
	}
}

// models replaces the models.
func (b *batch) models(ms []health.Model) {
	b.report.Models = append(b.report.Models[:0], ms...)
	clear(b.at)
}

// merge adds models to those that are there.
func (b *batch) merge(ms []health.Model) {
	if b.at == nil {
		b.at = map[string]int{}
	}
	if len(b.at) == 0 {
		for i := range b.report.Models {
			b.at[b.report.Models[i].Name] = i
		}
	}
	b.merged += len(ms)
	for _, m := range ms {
		i, ok := b.at[m.Name]
		if !ok {
			b.at[m.Name] = len(b.report.Models)
			b.report.Models = append(b.report.Models, m)
			continue
		}
		b.report.Models[i] = m
	}
}

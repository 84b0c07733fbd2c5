package oip

import (
	"time"
	"unicode/utf8"

	"github.com/mlbalancer/mlbalancer/health"
)

const (
	// maxModels bounds how many entries of a list are kept.
	maxModels = 4096
	// maxName is the longest name that is kept, with its version, in bytes.
	maxName = 512
)

// model is what is known of a model, or of one version of it.
type model struct {
	name    string // as it is reported: "name" or "name:version"
	list    uint64 // the last list that it is in
	state   health.ModelState
	service time.Duration // as last measured

	entry  uint64   // the last list that has an entry of just this name and version
	last   counters // of that entry
	growth counters // in the last list, over all entries of the name
}

// table holds the models of the last list of a server, so that a name is made a string once.
type table struct {
	models  map[string]*model
	listed  []*model // those that are in the last list
	list    uint64   // counts lists
	entries int      // of the last list
	cut     bool     // the last list was longer than is kept
	scratch []byte
}

// begin starts a new list.
func (t *table) begin() {
	t.list++
	t.listed, t.entries, t.cut = t.listed[:0], 0, false
}

// end forgets what is not in the list.
func (t *table) end() {
	if len(t.models) == len(t.listed) {
		return
	}
	for name, m := range t.models {
		if m.list != t.list {
			delete(t.models, name)
		}
	}
}

// add returns the model and the version that an entry of the list is about, which are the same if the entry has no version. It
// returns nil for one that is not to be kept.
func (t *table) add(name, version []byte) (whole, own *model) {
	if len(name) == 0 || len(name)+1+len(version) > maxName {
		return nil, nil
	}
	if t.entries == maxModels {
		t.cut = true
		return nil, nil
	}
	if whole = t.get(name); whole == nil || len(version) == 0 {
		own = whole
	} else {
		t.scratch = append(append(append(t.scratch[:0], name...), ':'), version...)
		own = t.get(t.scratch)
	}
	if own == nil {
		return nil, nil
	}
	t.entries++
	return whole, own
}

// get returns the model of a name, new or known, and nil if the name is none.
func (t *table) get(name []byte) *model {
	m := t.models[string(name)]
	if m == nil {
		if !utf8.Valid(name) {
			return nil
		}
		if t.models == nil {
			t.models = make(map[string]*model)
		}
		m = &model{name: string(name)}
		t.models[m.name] = m
	}
	if m.list != t.list {
		m.list, m.state, m.growth = t.list, health.ModelUnknown, counters{}
		t.listed = append(t.listed, m)
	}
	return m
}

// fill adds the list to a report.
func (t *table) fill(r *health.Report) {
	for _, m := range t.listed {
		r.Models = append(r.Models, health.Model{Name: m.name, State: m.state, Service: m.service})
	}
	r.Complete = !t.cut
	r.OnDemand = health.No // none of the servers that list their models loads one for a call
}

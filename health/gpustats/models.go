package gpustats

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/mlbalancer/mlbalancer/health"
	gpb "github.com/mlbalancer/mlbalancer/proto/mlbalancer/gpustats/v1"
)

// What is taken of one report.
const (
	maxModels = 4096
	maxName   = 512 // bytes
)

// versioned is a model with a version, and the name by which calls ask for both.
type versioned struct{ name, version, full string }

// appendModels appends the models to the report, each name once and in order, and returns whether that is all of them. A model
// with a version stands there under its name and under "name:version": calls may ask for either.
func (c *converter) appendModels(models []*gpb.Model, age time.Duration) (whole bool) {
	whole = len(models) <= maxModels
	models = models[:min(len(models), maxModels)]
	to := c.report.Models
	sorted := true
	add := func(m health.Model) {
		sorted = sorted && (len(to) == 0 || to[len(to)-1].Name < m.Name)
		to = append(to, m)
	}
	for i, m := range models {
		name := m.GetName()
		if name == "" {
			continue
		}
		if len(name) > maxName {
			whole = false
			continue
		}
		model := health.Model{Name: name, State: modelState(m.GetState())}
		if d, ok := duration(m.ServiceTime); ok {
			model.Service = d
		}
		if d, ok := duration(m.LoadEta); ok && model.State == health.ModelLoading {
			model.ETA = max(soon, d-age)
		}
		add(model)
		if m.Version == nil || *m.Version == "" {
			continue
		}
		if model.Name = c.fullName(i, name, *m.Version); model.Name == "" {
			whole = false
			continue
		}
		add(model)
	}
	if !sorted {
		to = merge(to)
	}
	c.report.Models = to
	return whole
}

// fullName returns "name:version", or nothing if that is too long. What stood at the same place of the last report is used again.
func (c *converter) fullName(i int, name, version string) string {
	if len(name)+1+len(version) > maxName {
		return ""
	}
	for len(c.versions) <= i {
		c.versions = append(c.versions, versioned{})
	}
	if v := &c.versions[i]; v.name != name || v.version != version || v.full == "" {
		*v = versioned{name: name, version: version, full: name + ":" + version}
	}
	return c.versions[i].full
}

// merge sorts the models by name and leaves of each name one: the one that serves soonest.
func merge(models []health.Model) []health.Model {
	slices.SortStableFunc(models, func(a, b health.Model) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(rank(a), rank(b)), cmp.Compare(a.ETA, b.ETA))
	})
	return slices.CompactFunc(models, func(a, b health.Model) bool { return a.Name == b.Name })
}

// rank orders what two versions of a model say of its name.
func rank(m health.Model) int {
	switch m.State {
	case health.ModelReady:
		return 0
	case health.ModelLoading:
		return 1
	case health.ModelUnknown:
		return 2
	case health.ModelAbsent:
		return 3
	default:
		return 4
	}
}

func modelState(s gpb.ModelState) health.ModelState {
	switch s {
	case gpb.ModelState_MODEL_STATE_ABSENT:
		return health.ModelAbsent
	case gpb.ModelState_MODEL_STATE_LOADING:
		return health.ModelLoading
	case gpb.ModelState_MODEL_STATE_READY:
		return health.ModelReady
	case gpb.ModelState_MODEL_STATE_UNLOADING, gpb.ModelState_MODEL_STATE_UNAVAILABLE:
		return health.ModelUnavailable
	default:
		return health.ModelUnknown
	}
}

package standard

import (
	"context"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/mlbalancer/mlbalancer/health"
)

// How many models are watched on a connection: many servers know no model by name, and need not carry streams that will never say
// anything.
const (
	maxUnknown = 8  // as long as the server has known no name
	maxModels  = 64 // afterwards
)

// models are the models in use that the server is, or was, asked about. Each is asked about in turn where there are more than can
// be watched: a stranger, whose name the server does not know, makes room for one that it has not been asked about.
type models struct {
	byName  map[string]*model
	watched int
	// named says that the server has known a model by name since the Watch began.
	named bool
	round uint64
}

type model struct {
	name    string
	watched bool
	stop    context.CancelFunc // ends the watch
	answer  serving
	heard   bool // there is an answer
	// known says that the server has known the name since it is watched: when it no longer does, the model has gone. Of a name that it
	// has never known it says nothing: it need not name all that it has.
	known bool
	said  health.ModelState
	round uint64 // of update that last found it in use
}

// hear takes an answer, and appends what that says of models to out.
func (ms *models) hear(m *model, s serving, out []health.Model) []health.Model {
	if !m.watched {
		return out
	}
	m.answer, m.heard = s, true
	if s == healthpb.HealthCheckResponse_SERVING || s == healthpb.HealthCheckResponse_NOT_SERVING {
		m.known, ms.named = true, true
	}
	return m.say(m.state(), out)
}

// state returns what the latest answer says of the model.
func (m *model) state() health.ModelState {
	switch {
	case m.answer == healthpb.HealthCheckResponse_SERVING:
		return health.ModelReady
	case m.answer == healthpb.HealthCheckResponse_NOT_SERVING:
		return health.ModelUnavailable
	case m.answer == healthpb.HealthCheckResponse_SERVICE_UNKNOWN && m.known:
		return health.ModelAbsent
	}
	return health.ModelUnknown
}

// update takes the names in use. It ends the watches of others, appends to out what is no longer said of them, and returns those
// whose watches are to start: each needs its stop before the next call.
func (ms *models) update(names []string, out []health.Model) (start []*model, _ []health.Model) {
	ms.round++
	for _, name := range names {
		if m := ms.byName[name]; m != nil {
			m.round = ms.round
		}
	}
	for name, m := range ms.byName {
		if m.round != ms.round {
			out = ms.end(m, out)
			delete(ms.byName, name)
		}
	}
	limit := maxUnknown
	if ms.named {
		limit = maxModels
	}
	for _, name := range names {
		m := ms.byName[name]
		if name == "" || m != nil && m.watched {
			continue
		}
		if ms.watched >= limit {
			if m != nil {
				continue // it has had its turn
			}
			stranger := ms.stranger()
			if stranger == nil {
				break
			}
			out = ms.end(stranger, out)
		}
		m = &model{name: name, watched: true, round: ms.round}
		ms.byName[name] = m
		ms.watched++
		start = append(start, m)
	}
	return start, out
}

// strange reports whether the model is watched, and the server does not know its name.
func (m *model) strange() bool {
	return m.watched && m.heard && m.answer == healthpb.HealthCheckResponse_SERVICE_UNKNOWN
}

// stranger returns a strange model, one that has never been known if there is one, or nil.
func (ms *models) stranger() (found *model) {
	for _, m := range ms.byName {
		if m.strange() && (found == nil || found.known) {
			found = m
		}
	}
	return found
}

// end ends the watch of a model, if there is one.
func (ms *models) end(m *model, out []health.Model) []health.Model {
	if !m.watched {
		return out
	}
	m.stop()
	m.watched = false
	ms.watched--
	if m.said == health.ModelUnknown {
		return out
	}
	return m.say(health.ModelUnknown, out)
}

func (m *model) say(state health.ModelState, out []health.Model) []health.Model {
	m.said = state
	return append(out, health.Model{Name: m.name, State: state})
}

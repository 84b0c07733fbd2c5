package oip

import (
	"context"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/mlbalancer/mlbalancer/health"
)

// maxAsked bounds for how many models ModelReady is called at a poll.
const maxAsked = 64

// readiness reads ServerReadyResponse and ModelReadyResponse, which are {bool ready = 1}.
type readiness struct{ ready bool }

// read implements response.
func (r *readiness) read(msg []byte) error {
	r.ready = false
	f := fields{rest: msg}
	for f.next() {
		switch {
		case f.is(1, protowire.VarintType):
			r.ready = f.number != 0
		case f.num == 1:
			return errOtherMessage
		}
	}
	return f.err
}

// errOtherMessage is what comes of a server, or a proxy, that answers every method alike.
var errOtherMessage = status.Error(codes.Unimplemented, "field 1 is no bool: the answer is another message")

// modelsInUse asks for the models that the channel uses, some of them if there are too many, the others at the next polls.
func (s *session) modelsInUse(ctx context.Context) error {
	names := s.inUse()
	for range min(len(names), maxAsked) {
		name := names[s.turn%len(names)]
		state, err := s.modelState(ctx, name)
		if err != nil {
			return err
		}
		s.turn++
		s.denied = s.denied || state == health.ModelUnavailable
		s.report.Models = append(s.report.Models, health.Model{Name: name, State: state})
	}
	if s.denied {
		s.report.OnDemand = health.No
	}
	return nil
}

// modelState asks for one model. A name with a colon may be one with a version, or just a name.
func (s *session) modelState(ctx context.Context, id string) (health.ModelState, error) {
	if i := strings.LastIndexByte(id, ':'); i > 0 && i < len(id)-1 {
		state, err := s.modelReady(ctx, request{name: id[:i], version: id[i+1:]})
		if err != nil || state == health.ModelReady {
			return state, err
		}
	}
	return s.modelReady(ctx, request{name: id})
}

func (s *session) modelReady(ctx context.Context, req request) (health.ModelState, error) {
	err := s.invoke(ctx, methodModelReady, req, &s.ready)
	switch {
	case err == nil && s.ready.ready:
		return health.ModelReady, nil
	case err == nil || missing(err):
		return health.ModelUnavailable, nil
	case modelsOwn(err):
		return health.ModelUnknown, nil
	}
	return health.ModelUnknown, err
}

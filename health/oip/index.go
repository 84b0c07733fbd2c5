package oip

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/mlbalancer/mlbalancer/health"
)

// index reads RepositoryIndexResponse{repeated ModelIndex models = 1}: the models in the server's repository, and their states.
type index struct{ table }

// read implements response.
func (x *index) read(msg []byte) error {
	x.begin()
	defer x.end()
	f := fields{rest: msg}
	for f.next() {
		if !f.is(1, protowire.BytesType) {
			continue
		}
		if err := x.readModel(f.bytes); err != nil {
			return fmt.Errorf("models: %w", err)
		}
	}
	return f.err
}

// readModel reads ModelIndex{name = 1, version = 2, state = 3}.
func (x *index) readModel(msg []byte) error {
	var name, version, text []byte
	f := fields{rest: msg}
	for f.next() {
		switch {
		case f.is(1, protowire.BytesType):
			name = f.bytes
		case f.is(2, protowire.BytesType):
			version = f.bytes
		case f.is(3, protowire.BytesType):
			text = f.bytes
		}
	}
	if f.err != nil {
		return f.err
	}
	if whole, own := x.add(name, version); own != nil {
		state := modelState(text)
		own.state = better(own.state, state)
		whole.state = better(whole.state, state)
	}
	return nil
}

// modelState is what a state in an index says: Triton's words, or MLServer's with "State." before them.
func modelState(text []byte) health.ModelState {
	switch string(text) {
	case "READY", "State.READY":
		return health.ModelReady
	case "LOADING", "State.LOADING":
		return health.ModelLoading
	case "UNLOADING", "State.UNLOADING", "UNAVAILABLE", "State.UNAVAILABLE":
		return health.ModelUnavailable
	case "State.UNKNOWN":
		return health.ModelUnavailable // MLServer: it has the model, and the model is not ready
	case "", "UNKNOWN":
		return health.ModelAbsent // Triton: never loaded
	}
	return health.ModelUnknown
}

// better is the state of a model whose versions are in two states: what its best version is.
func better(a, b health.ModelState) health.ModelState {
	for _, s := range [...]health.ModelState{
		health.ModelReady, health.ModelLoading, health.ModelUnavailable, health.ModelAbsent,
	} {
		if a == s || b == s {
			return s
		}
	}
	return health.ModelUnknown
}

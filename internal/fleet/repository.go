package fleet

import (
	"context"
	"maps"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer/internal/oip"
)

func (v *service) RepositoryIndex(
	ctx context.Context, req *oip.RepositoryIndexRequest,
) (*oip.RepositoryIndexResponse, error) {
	resp := &oip.RepositoryIndexResponse{}
	err := v.server.tellModels(ctx, func() error {
		names, models := maps.Clone(v.server.repository), v.server.told(OIP)
		for name := range models {
			names[name] = true
		}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			entry := &oip.RepositoryIndexResponse_ModelIndex{Name: name}
			if m := models[name]; m != nil {
				m.describe(entry)
			}
			if !req.GetReady() || entry.State == "READY" {
				resp.Models = append(resp.Models, entry)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// describe fills in what the repository index says of the model.
func (m *model) describe(entry *oip.RepositoryIndexResponse_ModelIndex) {
	switch m.state {
	case absent:
		return // never loaded: no version, no state
	case inLane:
		entry.State = "LOADING"
	case resident:
		entry.State = "READY"
	case unloading:
		entry.State = "UNLOADING"
	case unloaded:
		entry.State, entry.Reason = "UNAVAILABLE", "unloaded"
	case failed:
		entry.State, entry.Reason = "UNAVAILABLE", errNoMemory.Error()
	}
	entry.Version = modelVersion
}

func (v *service) RepositoryModelLoad(
	ctx context.Context, req *oip.RepositoryModelLoadRequest,
) (*oip.RepositoryModelLoadResponse, error) {
	var j *job
	var gone chan struct{}
	err := v.server.manage(func() error {
		if !v.server.known(req.GetModelName()) {
			return status.Errorf(codes.Internal, "failed to load '%s', failed to poll from model repository", req.GetModelName())
		}
		j, gone = v.server.gpu.load(req.GetModelName()), v.server.gone
		return nil
	})
	if err != nil {
		return nil, err
	}
	select {
	case <-j.finished:
		if err := refusal(j.err, req.GetModelName(), ""); err != nil {
			return nil, err
		}
		return &oip.RepositoryModelLoadResponse{}, nil
	case <-ctx.Done(): // the load goes on
		return nil, status.FromContextError(ctx.Err()).Err()
	case <-gone:
		return nil, errExiting
	}
}

func (v *service) RepositoryModelUnload(
	_ context.Context, req *oip.RepositoryModelUnloadRequest,
) (*oip.RepositoryModelUnloadResponse, error) {
	err := v.server.manage(func() error {
		v.server.gpu.unload(req.GetModelName()) // one that is not there is no error
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &oip.RepositoryModelUnloadResponse{}, nil
}

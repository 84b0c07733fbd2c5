package fleet

import (
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The codes and texts of Triton (core/src/model_repository_manager, core/src/server.cc).
var (
	errExiting  = status.Error(codes.Unavailable, "Server exiting")
	errNotReady = status.Error(codes.Unavailable, "Server not ready")
	errStopping = status.Error(codes.Unavailable,
		"Server is stopping, scheduler for model has stopped accepting new inference requests")
)

func notFound(model string) error {
	return status.Errorf(codes.NotFound, "Request for unknown model: '%s' is not found", model)
}

func noVersions(model string) error {
	return status.Errorf(codes.NotFound, "Request for unknown model: '%s' has no available versions", model)
}

// find returns the error for a model that the repository does not have in the version that is asked for, if any.
func (s *Server) find(model, version string) error {
	switch {
	case !s.known(model):
		return notFound(model)
	case version != "" && version != modelVersion:
		return status.Errorf(codes.NotFound, "Request for unknown model: '%s' version %s is not found", model, version)
	}
	return nil
}

// refusal returns what a client is told when the gpu refuses a job, nil if it did not.
func refusal(err error, model, version string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errUnknown):
		return notFound(model)
	case errors.Is(err, errNoMemory):
		return status.Errorf(codes.InvalidArgument,
			"load failed for model '%s': version %s is at UNAVAILABLE state: Internal: %v;", model, modelVersion, err)
	case version != "":
		return status.Errorf(codes.Unavailable, "Request for unknown model: '%s' version %s is not at ready state", model, version)
	}
	return noVersions(model)
}

package oip

import (
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer/health"
)

// exiting are the texts of UNAVAILABLE from servers that go away.
var exiting = []string{
	"Server exiting",       // Triton
	"Server is stopping",   // Triton
	"shutting down",        // Triton: "GRPC server is shutting down"
	"not live",             // KServe
	"Cancelling all calls", // MLServer, and all that build on gRPC's C core
}

// notReady are the texts of UNAVAILABLE from servers that are not ready.
var notReady = []string{
	"Server not ready",    // Triton
	"Server is not ready", // KServe
}

// noSuchModel are the texts of servers that do not have a model, or not ready, where NOT_FOUND does not say it.
var noSuchModel = []string{
	"ModelNotFound",         // MLServer, where it does not map the exception
	"ModelNotReady",         // KServe, likewise
	"unknown model",         // Triton before 22.07 and with --model-namespacing
	"is not at ready state", // Triton: the version loads or unloads
	"Model with name",       // KServe: "Model with name m is not ready."
	"is not ready yet",      // MLServer
	"not loaded yet",        // OpenVINO Model Server
}

// serverState returns what the status of a call says of the server as a whole, and whether it does.
func serverState(err error) (health.ServerState, bool) {
	if err == nil || status.Code(err) != codes.Unavailable {
		return health.ServerUnknown, false
	}
	switch text := status.Convert(err).Message(); {
	case contains(text, exiting):
		return health.ServerDraining, true
	case contains(text, notReady):
		return health.ServerNotReady, true
	}
	return health.ServerUnknown, false
}

// refused reports whether a server does not offer a method, or not to us, or answers more than is received.
func refused(err error) bool {
	switch status.Code(err) {
	case codes.Unimplemented, codes.PermissionDenied, codes.Unauthenticated:
		return true
	case codes.Unavailable: // Triton with --grpc-restricted-protocol
		return strings.Contains(status.Convert(err).Message(), "This protocol is restricted")
	case codes.ResourceExhausted: // grpc's own
		return strings.Contains(status.Convert(err).Message(), "larger than max")
	}
	return false
}

// missing reports whether the status of ModelReady says that the model is not there, or not ready.
func missing(err error) bool {
	switch status.Code(err) {
	case codes.NotFound:
		return true
	case codes.Unknown, codes.InvalidArgument, codes.Unavailable:
		return contains(status.Convert(err).Message(), noSuchModel)
	}
	return false
}

// modelsOwn reports whether the status of ModelReady is one of the model alone, after which others may be asked for.
func modelsOwn(err error) bool {
	if _, ok := status.FromError(err); !ok {
		return false // a malformed response
	}
	switch status.Code(err) {
	case codes.Unknown, codes.InvalidArgument, codes.FailedPrecondition, codes.Internal:
		return true
	}
	return false
}

func contains(text string, parts []string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) })
}

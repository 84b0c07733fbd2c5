package outcome

import (
	"google.golang.org/grpc/codes"

	"github.com/mlbalancer/mlbalancer/picker"
)

// rule is what a status means whose message contains text.
type rule struct {
	text    string
	outcome picker.Outcome
}

// defaults is what a code means whose text no rule knows.
var defaults = [numCodes]picker.Outcome{
	codes.OK:                 picker.Success,
	codes.Canceled:           picker.Failure, // the caller's own is judged before
	codes.Unknown:            picker.ModelFault,
	codes.InvalidArgument:    picker.CallerFault,
	codes.DeadlineExceeded:   picker.Failure, // unless the endpoint had no time
	codes.NotFound:           picker.CallerFault,
	codes.AlreadyExists:      picker.CallerFault,
	codes.PermissionDenied:   picker.CallerFault,
	codes.ResourceExhausted:  picker.Overload,
	codes.FailedPrecondition: picker.CallerFault,
	codes.Aborted:            picker.CallerFault,
	codes.OutOfRange:         picker.CallerFault,
	codes.Unimplemented:      picker.CallerFault,
	codes.Internal:           picker.ModelFault, // exceptions, dead model processes, GPUs out of memory
	codes.Unavailable:        picker.Failure,    // transports, and proxies that find nobody behind them
	codes.DataLoss:           picker.Failure,
	codes.Unauthenticated:    picker.CallerFault,
}

// rules holds the texts of servers, and of grpc itself. Within a code the first one that matches counts.
var rules = map[codes.Code][]rule{
	codes.Unavailable: {
		{"Exceeds maximum queue size", picker.Overload},                                          // Triton: the model's queue is full
		{"Request timeout expired", picker.Overload},                                             // Triton: queued for too long
		{"timeout of the corresponding sequence has been expired", picker.Overload},              // Triton
		{"Max sequence number has been reached", picker.Overload},                                // OVMS
		{"The batch scheduling queue to which this task was submitted is full", picker.Overload}, // TF Serving
		{"all batch threads are busy", picker.Overload},                                          // TF Serving: streaming batches
		{"Request dropped due to backpressure", picker.Overload},                                 // Ray Serve, before it was RESOURCE_EXHAUSTED
		{"unexpected HTTP status code received from server: 429", picker.Overload},               // grpc, of a proxy's answer
		{"Server exiting", picker.Draining},                                                      // Triton
		{"Server is stopping", picker.Draining},                                                  // Triton
		{"GRPC server is shutting down", picker.Draining},                                        // Triton
		{"Server not ready", picker.Draining},                                                    // Triton
		{"Server is not ready", picker.Draining},                                                 // KServe
		{"Server is not live", picker.Draining},                                                  // KServe
		{"Cancelling all calls", picker.Draining},                                                // MLServer, and all that build on gRPC's C core
		{"Request for unknown model", picker.Misplaced},                                          // Triton, also those before 22.07, which had no NOT_FOUND
		{"is not at ready state", picker.Misplaced},                                              // Triton: the version loads or unloads
		{"not loaded yet", picker.Misplaced},                                                     // OVMS
		{"Model with name", picker.Misplaced},                                                    // KServe: "Model with name m is not ready."
		{"This protocol is restricted, expecting header", picker.CallerFault},                    // Triton
		{"explicit model load / unload is not allowed", picker.CallerFault},                      // Triton in poll mode
		{closing, picker.Cancelled},                                                              // grpc, after the server said GOAWAY
	},
	codes.NotFound: {
		{"unable to find feed output", picker.CallerFault},   // TF Serving: no such input
		{"FetchOutputs node", picker.CallerFault},            // TF Serving: no such output
		{"Application metadata not set", picker.CallerFault}, // Ray Serve
		{"Application '", picker.Misplaced},                  // Ray Serve
		{"Servable not found for request", picker.Misplaced}, // TF Serving
		{"is not loaded yet", picker.Misplaced},              // OVMS: a pipeline or graph
		{"is retired", picker.Misplaced},                     // OVMS: a pipeline or graph
		{"Model", picker.Misplaced},                          // KServe, MLServer, OVMS, TorchServe
		{"model", picker.Misplaced},                          // Triton, ModelMesh, TGIS
	},
	codes.InvalidArgument: {
		{"is not ready yet", picker.Misplaced},                // MLServer
		{"Request for unknown model", picker.Misplaced},       // Triton with --model-namespacing
		{"load failed for model", picker.ModelFault},          // Triton: it cannot load here
		{"MP status - INTERNAL", picker.ModelFault},           // OVMS: a MediaPipe graph failed, and not over its input
		{"MP status - UNKNOWN", picker.ModelFault},            // OVMS
		{"MP status - UNAVAILABLE", picker.ModelFault},        // OVMS
		{"MP status - RESOURCE_EXHAUSTED", picker.ModelFault}, // OVMS
	},
	codes.FailedPrecondition: {
		{"Failed to start mediapipe graph", picker.ModelFault}, // OVMS
		{"into target device", picker.ModelFault},              // OVMS: the model does not compile here
	},
	codes.ResourceExhausted: {
		{"larger than max", picker.CallerFault},              // grpc-go and gRPC's C core, either direction, either side
		{"message exceeds maximum size", picker.CallerFault}, // grpc-java: ModelMesh, TorchServe
		{"grpc: message too large", picker.CallerFault},      // grpc-go
		{"OOM when allocating tensor", picker.ModelFault},    // TF Serving
	},
	codes.Internal: {
		{"ModelNotFoundException", picker.Misplaced},                          // TorchServe
		{"ModelVersionNotFoundException", picker.Misplaced},                   // TorchServe
		{"has no worker to serve inference request", picker.Overload},         // TorchServe: or its queue is full, it does not say
		{"BadRequestException", picker.CallerFault},                           // TorchServe
		{"grpc: error while marshaling", picker.CallerFault},                  // grpc-go: the request
		{"grpc: error while compressing", picker.CallerFault},                 // grpc-go: the request
		{"stream terminated by RST_STREAM", picker.Failure},                   // grpc-go
		{"server closed the stream without sending trailers", picker.Failure}, // grpc-go
		{"unexpected HTTP status code received", picker.Failure},              // grpc-go, of a proxy's answer
	},
	codes.Unknown: {
		{"ModelNotFound", picker.Misplaced},                      // MLServer, where it does not map the exception
		{"ModelNotReady", picker.Misplaced},                      // KServe, likewise
		{"unexpected HTTP status code received", picker.Failure}, // grpc-go, of a proxy's answer
		{"stream terminated by RST_STREAM", picker.Failure},      // grpc-go
		{"malformed header", picker.Failure},                     // grpc-go: no gRPC at the other end
	},
	codes.DeadlineExceeded: {
		{"Request timed out after", picker.Overload}, // Ray Serve
	},
}

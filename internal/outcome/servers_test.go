package outcome

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer/picker"
)

func defaultTable(t testing.TB) *Table {
	t.Helper()
	table, err := New(nil)
	require.NoError(t, err)
	return table
}

// What servers answer, condition by condition, in their own words.
func TestServers(t *testing.T) {
	for _, tc := range []struct {
		server, condition string
		code              codes.Code
		text              string
		want              picker.Outcome
	}{
		{"Triton", "unknown model", codes.NotFound, "Request for unknown model: 'x' is not found", picker.Misplaced},
		{"Triton", "unknown version", codes.NotFound, "Request for unknown model: 'x' version 7 is not found", picker.Misplaced},
		{"Triton", "unknown model before 22.07", codes.Unavailable, "Request for unknown model: 'x' is not found", picker.Misplaced},
		{"Triton", "unknown model under namespacing", codes.InvalidArgument,
			"Request for unknown model: there are 2 models of that name", picker.Misplaced},
		{"Triton", "loading, or unloaded, or draining", codes.NotFound, "Request for unknown model: 'x' has no available versions",
			picker.Misplaced},
		{"Triton", "version is loading", codes.Unavailable, "Request for unknown model: 'x' version 1 is not at ready state",
			picker.Misplaced},
		{"Triton", "version is loading, bare", codes.Unavailable, "'x' version 1 is not at ready state", picker.Misplaced},
		{"Triton", "exiting", codes.Unavailable, "Server exiting", picker.Draining},
		{"Triton", "not ready", codes.Unavailable, "Server not ready", picker.Draining},
		{"Triton", "shutting down", codes.Unavailable, "GRPC server is shutting down and has stopped accepting new requests.",
			picker.Draining},
		{"Triton", "stopping", codes.Unavailable,
			"[request id: 1] Server is stopping, scheduler for model has stopped accepting new inference requests", picker.Draining},
		{"Triton", "queue full", codes.Unavailable, "[request id: <id_unknown>] Exceeds maximum queue size", picker.Overload},
		{"Triton", "queued too long", codes.Unavailable, "Request timeout expired", picker.Overload},
		{"Triton", "sequence queued too long", codes.Unavailable, "timeout of the corresponding sequence has been expired",
			picker.Overload},
		{"Triton", "bad shape", codes.InvalidArgument, "unexpected shape for input 'INPUT0' for model 'x'. Expected [-1,4], got [1,5]",
			picker.CallerFault},
		{"Triton", "sequence without start", codes.InvalidArgument, "inference request for sequence 42 to model 'x' must specify the " +
			"START flag on the first request of the sequence", picker.CallerFault},
		{"Triton", "exception in the model", codes.Internal, "Failed to process the request(s) for model instance 'x_0_0', message: boom",
			picker.ModelFault},
		{"Triton", "model process killed", codes.Internal, "Stub process 'echo_0_0' is not healthy.", picker.ModelFault},
		{"Triton", "GPU out of memory", codes.Internal, "onnx runtime error 6: Failed to allocate memory for requested buffer of size 1",
			picker.ModelFault},
		{"Triton", "GPU broken", codes.Internal, "CUDA error: an illegal memory access was encountered", picker.ModelFault},
		{"Triton", "load failed", codes.InvalidArgument, "load failed for model 'broken': version 1 is at UNAVAILABLE state: Internal: no;",
			picker.ModelFault},
		{"Triton", "load of an unknown name", codes.Internal, "failed to load 'nope', failed to poll from model repository",
			picker.ModelFault},
		{"Triton", "restricted protocol", codes.Unavailable, "This protocol is restricted, expecting header 'triton-grpc-protocol-k'",
			picker.CallerFault},
		{"Triton", "load in poll mode", codes.Unavailable, "explicit model load / unload is not allowed if polling is enabled",
			picker.CallerFault},
		{"Triton", "statistics of a missing model", codes.InvalidArgument, "requested model 'x' is not available", picker.CallerFault},
		{"Triton", "unsupported", codes.Unimplemented, "", picker.CallerFault},
		{"Triton", "cancelled by itself", codes.Canceled, "", picker.Failure},

		{"KServe", "unknown model", codes.NotFound, "Model with name x does not exist.", picker.Misplaced},
		{"KServe", "model not ready", codes.Unavailable, "Model with name x is not ready.", picker.Misplaced},
		{"KServe", "model not ready, unmapped", codes.Unknown,
			"Unexpected <class 'AttributeError'>: 'ModelNotReady' object has no attribute 'reason'", picker.Misplaced},
		{"KServe", "server not ready", codes.Unavailable, "Server is not ready.", picker.Draining},
		{"KServe", "server not live", codes.Unavailable, "Server is not live.", picker.Draining},
		{"KServe", "bad input or InferenceError", codes.InvalidArgument, "Input tensor is missing", picker.CallerFault},
		{"KServe", "exception in the model", codes.Internal, "Internal server error", picker.ModelFault},
		{"KServe", "SIGTERM", codes.Canceled, "CANCELLED", picker.Failure},
		{"KServe", "no such method", codes.Unimplemented, "Method not found!", picker.CallerFault},

		{"MLServer", "unknown model", codes.NotFound, "Model x with version  not found", picker.Misplaced},
		{"MLServer", "unknown model, ModelReady", codes.Unknown,
			"Unexpected <class 'mlserver.errors.ModelNotFound'>: Model x with version  not found", picker.Misplaced},
		{"MLServer", "loading", codes.InvalidArgument, "Model x with version  is not ready yet.", picker.Misplaced},
		{"MLServer", "bad input", codes.InvalidArgument, "Invalid datatype", picker.CallerFault},
		{"MLServer", "exception in the model", codes.Internal, "builtins.ValueError: boom", picker.ModelFault},
		{"MLServer", "SIGTERM, in flight", codes.Unavailable, "Cancelling all calls", picker.Draining},
		{"MLServer", "SIGTERM, new", codes.Canceled, "", picker.Failure},
		{"MLServer", "message too large", codes.ResourceExhausted, "SERVER: Received message larger than max (4194329 vs. 4194304)",
			picker.CallerFault},

		{"OVMS", "unknown model", codes.NotFound, "Model with requested name is not found", picker.Misplaced},
		{"OVMS", "unknown version", codes.NotFound, "Model with requested version is not found", picker.Misplaced},
		{"OVMS", "version loading", codes.Unavailable, "Model with requested version is not loaded yet", picker.Misplaced},
		{"OVMS", "version loading, older", codes.NotFound, "Model with requested version is not loaded yet", picker.Misplaced},
		{"OVMS", "version retired", codes.NotFound, "Model with requested version is retired", picker.Misplaced},
		{"OVMS", "pipeline loading", codes.NotFound, "Pipeline is not loaded yet", picker.Misplaced},
		{"OVMS", "graph retired", codes.NotFound, "Mediapipe is retired", picker.Misplaced},
		{"OVMS", "unknown sequence", codes.NotFound, "Sequence with provided ID does not exist", picker.CallerFault},
		{"OVMS", "too many sequences", codes.Unavailable, "Max sequence number has been reached. Could not create new sequence.",
			picker.Overload},
		{"OVMS", "bad input", codes.InvalidArgument, "Invalid input shape", picker.CallerFault},
		{"OVMS", "graph refuses its input", codes.InvalidArgument,
			"Mediapipe execution failed. MP status - INVALID_ARGUMENT: Input length exceeds the maximum allowed length", picker.CallerFault},
		{"OVMS", "graph fails", codes.InvalidArgument, "Mediapipe execution failed. MP status - INTERNAL: CalculatorGraph::Run() failed",
			picker.ModelFault},
		{"OVMS", "graph does not start", codes.FailedPrecondition, "Failed to start mediapipe graph - x", picker.ModelFault},
		{"OVMS", "model does not compile", codes.FailedPrecondition, "Cannot compile model into target device", picker.ModelFault},
		{"OVMS", "inference fails", codes.Internal, "Internal inference error", picker.ModelFault},
		{"OVMS", "unmapped", codes.Unknown, "Unknown error", picker.ModelFault},

		{"TF Serving", "unknown model", codes.NotFound, "Servable not found for request: Latest(x)", picker.Misplaced},
		{"TF Serving", "no such input", codes.NotFound, "FeedInputs: unable to find feed output model/x:0", picker.CallerFault},
		{"TF Serving", "no such output", codes.NotFound, "FetchOutputs node model/y:0: not found", picker.CallerFault},
		{"TF Serving", "batch queue full", codes.Unavailable,
			"The batch scheduling queue to which this task was submitted is full; task size is 1", picker.Overload},
		{"TF Serving", "streaming batches full", codes.Unavailable, "This task would start a fresh batch, but all batch threads are busy, " +
			"so at present there is no processing capacity available for this task", picker.Overload},
		{"TF Serving", "out of memory", codes.ResourceExhausted, "OOM when allocating tensor with shape[64,1024] and type float",
			picker.ModelFault},
		{"TF Serving", "bad input", codes.InvalidArgument, "input must be 4-dimensional", picker.CallerFault},
		{"TF Serving", "no such signature", codes.FailedPrecondition, `Serving signature key "x" not found.`, picker.CallerFault},

		{"ModelMesh", "unknown model", codes.NotFound, "model not found", picker.Misplaced},
		{"ModelMesh", "unknown vmodel", codes.NotFound, "vmodel not found", picker.Misplaced},
		{"ModelMesh", "load failed", codes.Internal, "Model x load failed", picker.ModelFault},
		{"ModelMesh", "message too large", codes.ResourceExhausted, "gRPC message exceeds maximum size 16777216: 20000000",
			picker.CallerFault},
		{"ModelMesh", "loading took too long", codes.DeadlineExceeded, "", picker.Failure},
		{"ModelMesh", "streams", codes.Unimplemented, "Streaming not supported yet", picker.CallerFault},

		{"TorchServe", "unknown model", codes.Internal,
			"Model not found: x\norg.pytorch.serve.archive.model.ModelNotFoundException", picker.Misplaced},
		{"TorchServe", "unknown version", codes.Internal, "Model version: 2.0 does not exist for model: x\n" +
			"org.pytorch.serve.archive.model.ModelVersionNotFoundException", picker.Misplaced},
		{"TorchServe", "unknown model, ModelReady", codes.NotFound, "Model not found: x", picker.Misplaced},
		{"TorchServe", "no worker, or queue full", codes.Internal, `Model "x" has no worker to serve inference request. Please use ` +
			"scale workers API to add workers.\nInternalServerException.()", picker.Overload},
		{"TorchServe", "no model named", codes.Internal, "Parameter model_name is required.\nBadRequestException.()", picker.CallerFault},
		{"TorchServe", "exception in the model", codes.Internal, "Prediction failed", picker.ModelFault},

		{"Ray Serve", "unknown application", codes.NotFound,
			"Application 'x' not found. Ping /ray.serve.RayServeAPIService/ListApplications for available applications.", picker.Misplaced},
		{"Ray Serve", "no application named", codes.NotFound, "Application metadata not set. Ping " +
			"/ray.serve.RayServeAPIService/ListApplications for available applications.", picker.CallerFault},
		{"Ray Serve", "backpressure", codes.ResourceExhausted,
			"Request dropped due to backpressure (num_queued_requests=2, max_queued_requests=2).", picker.Overload},
		{"Ray Serve", "backpressure, older", codes.Unavailable,
			"Request dropped due to backpressure (num_queued_requests=2, max_queued_requests=2).", picker.Overload},
		{"Ray Serve", "its own time limit", codes.DeadlineExceeded, "Request timed out after 10.0s.", picker.Overload},
		{"Ray Serve", "exception", codes.Internal, "division by zero", picker.ModelFault},

		{"TGIS", "unknown model", codes.NotFound, "Unrecognized model_id: x", picker.Misplaced},

		{"grpc-go", "refused", codes.Unavailable,
			`connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:1: connect: connection refused"`, picker.Failure},
		{"grpc-go", "killed", codes.Unavailable, "error reading from server: EOF", picker.Failure},
		{"grpc-go", "closing transport", codes.Unavailable, "transport is closing", picker.Failure},
		{"grpc-go", "received too much", codes.ResourceExhausted, "grpc: received message larger than max (5000000 vs. 4194304)",
			picker.CallerFault},
		{"grpc-go", "received too much, compressed", codes.ResourceExhausted,
			"grpc: received message after decompression larger than max 4194304", picker.CallerFault},
		{"grpc-go", "sends too much", codes.ResourceExhausted, "trying to send message larger than max (5000000 vs. 4194304)",
			picker.CallerFault},
		{"grpc-go", "sends over 4 GiB", codes.ResourceExhausted, "grpc: message too large (5000000000 bytes)", picker.CallerFault},
		{"grpc-go", "request does not marshal", codes.Internal, "grpc: error while marshaling: string field contains invalid UTF-8",
			picker.CallerFault},
		{"grpc-go", "request does not compress", codes.Internal, "grpc: error while compressing: x", picker.CallerFault},
		{"grpc-go", "stream reset", codes.Internal, "stream terminated by RST_STREAM with error code: INTERNAL_ERROR", picker.Failure},
		{"grpc-go", "stream cancelled", codes.Canceled, "stream terminated by RST_STREAM with error code: CANCEL", picker.Failure},
		{"grpc-go", "stream calmed", codes.ResourceExhausted, "stream terminated by RST_STREAM with error code: ENHANCE_YOUR_CALM",
			picker.Overload},
		{"grpc-go", "no trailers", codes.Internal, "server closed the stream without sending trailers", picker.Failure},
		{"proxy", "HTTP 400", codes.Internal, "unexpected HTTP status code received from server: 400 (Bad Request)", picker.Failure},
		{"proxy", "HTTP 429", codes.Unavailable, "unexpected HTTP status code received from server: 429 (Too Many Requests); " +
			`malformed header: missing HTTP content-type`, picker.Overload},
		{"proxy", "HTTP 500", codes.Unknown, "unexpected HTTP status code received from server: 500 (Internal Server Error)",
			picker.Failure},
		{"proxy", "HTTP 503", codes.Unavailable, "unexpected HTTP status code received from server: 503 (Service Unavailable)",
			picker.Failure},
		{"proxy", "no gRPC", codes.Unknown, "malformed header: missing HTTP status", picker.Failure},
		{"proxy", "nobody behind it", codes.Unavailable, "no healthy upstream", picker.Failure},
	} {
		t.Run(tc.server+"/"+tc.condition, func(t *testing.T) {
			got := defaultTable(t).Classify(context.Background(), End{Err: status.Error(tc.code, tc.text), Received: true})
			assert.Equal(t, tc.want.String(), got.String())
		})
	}
}

// A code whose text nobody knows opens breakers only where the endpoint, or a model on it, is at fault.
func TestUnknownTexts(t *testing.T) {
	want := map[codes.Code]picker.Outcome{
		codes.Unavailable: picker.Failure, codes.DeadlineExceeded: picker.Failure, codes.DataLoss: picker.Failure,
		codes.Canceled: picker.Failure, // the caller still waits
		codes.Internal: picker.ModelFault, codes.Unknown: picker.ModelFault,
		codes.ResourceExhausted: picker.Overload,
	}
	table := defaultTable(t)
	for c := codes.Canceled; c < numCodes; c++ {
		o, ok := want[c]
		if !ok {
			o = picker.CallerFault
		}
		for _, text := range []string{"", "no such thing"} {
			assert.Equal(t, o.String(), table.Classify(context.Background(), End{Err: status.Error(c, text)}).String(), c.String())
		}
	}
}

// No rule may hide behind one that comes before it.
func TestEveryRuleCounts(t *testing.T) {
	table := defaultTable(t)
	for code, rs := range rules {
		for _, r := range rs {
			err := status.Error(code, "some "+r.text+" words")
			assert.Equal(t, r.outcome.String(), table.Classify(context.Background(), End{Err: err}).String(), "%s %q", code, r.text)
		}
	}
}

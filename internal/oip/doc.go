// Package oip is the Open Inference Protocol v2 over gRPC (inference.GRPCInferenceService) as Triton serves it: messages,
// server interface and a small client, for simulated servers, examples and tests.
//
// Its messages are ordinary generated ones, except that they are known to a private registry only. Two packages that
// register inference.* globally panic at start-up, and every user of Triton or KServe links one already.
package oip

import "google.golang.org/protobuf/reflect/protoregistry"

//go:generate go run -C ../../tools ./protogen -private ../internal/oip

// The registries that the generated code describes its messages in.
var (
	files = new(protoregistry.Files)
	types = new(protoregistry.Types)
)

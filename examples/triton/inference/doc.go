// Package inference is what protoc generates from the part of Triton's service definition that the example calls.
package inference

//go:generate go run -C ../../../tools ./protogen ../examples/triton/inference

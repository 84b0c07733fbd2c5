// Package gpustatsv1 is the protocol in which a model server reports its load, its GPUs and its models: messages, client and server
// interface of mlbalancer.gpustats.v1.GPUStats. gpustats.proto beside it says what each field means.
package gpustatsv1

//go:generate go run -C ../../../../tools ./protogen -root ../proto ../proto/mlbalancer/gpustats/v1

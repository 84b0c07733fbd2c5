// Package interop tests model_aware against real Triton, MLServer and KServe servers, and beside it, in the same run, grpc-go's
// round_robin.
//
//	make interop        every scenario, about a quarter of an hour
//	make interop-smoke  two Tritons, two minutes
//
// The environment variable INTEROP says which tests run, "full" or "smoke"; without it only those that need no servers do. The
// servers are installed into .tmp/interop of the project, once.
package interop

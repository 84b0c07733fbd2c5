// Package integration tests the whole policy over real gRPC in one process: what a user sees of it through a channel, a service
// config, the interceptors and the read-outs. The cases that other balancers are known to have failed at are in package cases.
package integration

// Package servers installs and runs real inference servers for tests: Triton, MLServer and KServe's Python server, as their
// makers publish them, on the CPU. The models they serve answer with what they are sent.
//
// A server is a process group of its own that listens on loopback alone. It is gone when its [Server] is closed, and when this
// process dies, however that happens.
package servers

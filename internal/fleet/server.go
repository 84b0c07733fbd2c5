package fleet

import "google.golang.org/grpc/codes"

// Server is one simulated model server. All its methods are safe for concurrent use.
type Server struct{}

// Name returns the server's name, "server-0" and so on. It answers ServerMetadata, and stands in each response's parameters.
func (s *Server) Name() string { panic("not yet") }

// Addr returns the address that the server listens on, host:port.
func (s *Server) Addr() string { panic("not yet") }

// Stats returns what the server has counted since the start or the last Reset of the fleet.
func (s *Server) Stats() Stats { panic("not yet") }

// Events returns what happened in the server's memory since the start or the last Reset of the fleet, in order.
func (s *Server) Events() []Event { panic("not yet") }

// Preload makes models resident at once, as far as there is room, and returns how many of them are.
func (s *Server) Preload(models ...string) int { panic("not yet") }

// Evict takes a model out of memory when the requests that it holds are finished; later ones find it gone. It reports
// whether the model was resident.
func (s *Server) Evict(model string) bool { panic("not yet") }

// Slow makes requests and loads that start from now on take factor times as long; 1 is the normal speed.
func (s *Server) Slow(factor float64) { panic("not yet") }

// Fail makes a fraction of the inference calls, 0 to 1, fail at once with a status. 0 or codes.OK ends it.
func (s *Server) Fail(code codes.Code, message string, fraction float64) { panic("not yet") }

// FailModel is Fail for the calls of one model. Both may be on; the model's comes first.
func (s *Server) FailModel(model string, code codes.Code, message string, fraction float64) {
	panic("not yet")
}

// Hang makes the server accept inference calls and never answer them, or ends that. A call that hangs does so until
// its context ends. Readiness and health are answered as ever.
func (s *Server) Hang(on bool) { panic("not yet") }

// Drain makes the server behave as Triton does after SIGTERM: calls in flight are finished, new ones fail: for 50 ms with UNAVAILABLE
// and then with NOT_FOUND. Connections stay, and new ones are accepted. The server stays so until Kill, GracefulStop or Restart.
func (s *Server) Drain() { panic("not yet") }

// Kill stops the server as SIGKILL does: connections are cut, calls in flight fail, new connections are refused. Memory is lost.
func (s *Server) Kill() { panic("not yet") }

// GracefulStop takes no more calls, waits until those in flight have ended, and stops the server.
func (s *Server) GracefulStop() { panic("not yet") }

// Restart stops the server like Kill if it is up, and starts it again on the same address with empty memory and no faults.
// Counters and events go on.
func (s *Server) Restart() error { panic("not yet") }

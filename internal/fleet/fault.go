package fleet

import (
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// drainRefusal is how long, in model time, a server that drains answers UNAVAILABLE before it forgets its models.
const drainRefusal = 50 * time.Millisecond

// faults are what a server has been told to do wrong.
type faults struct {
	all      failure
	models   map[string]failure
	hang     bool
	draining bool
	since    time.Duration // when draining began, in model time
	signalFaults
}

// failure is a status for a fraction of the calls.
type failure struct {
	status   *status.Status
	fraction float64
}

func newFailure(code codes.Code, message string, fraction float64) failure {
	if code == codes.OK {
		return failure{}
	}
	return failure{status.New(code, message), fraction}
}

// strike returns the error for a call of a model, or nil if it goes through.
func (f *faults) strike(d *draws, model string) error {
	for _, failure := range [...]failure{f.models[model], f.all} {
		if failure.fraction > 0 && d.fault.Float64() < failure.fraction {
			return failure.status.Err()
		}
	}
	return nil
}

// drain returns the error for an inference call while the server drains, and nil if it does not.
func (f *faults) drain(now time.Duration, model string) error {
	switch {
	case !f.draining:
		return nil
	case now-f.since < drainRefusal:
		return errStopping
	default:
		return noVersions(model)
	}
}

// Slow makes requests and loads that start from now on take factor times as long; 1 is the normal speed. It panics if
// factor is not over 0.
func (s *Server) Slow(factor float64) {
	if !(factor > 0) {
		panic(fmt.Sprintf("fleet: Slow(%v): want a factor over 0", factor))
	}
	s.update(func() { s.gpu.slow = factor })
}

// Fail makes a fraction of the inference calls, 0 to 1, fail at once with a status. 0 or codes.OK ends it.
func (s *Server) Fail(code codes.Code, message string, fraction float64) {
	s.update(func() { s.faults.all = newFailure(code, message, fraction) })
}

// FailModel is Fail for the calls of one model. Both may be on; the model's comes first.
func (s *Server) FailModel(model string, code codes.Code, message string, fraction float64) {
	s.update(func() {
		if s.faults.models == nil {
			s.faults.models = make(map[string]failure)
		}
		s.faults.models[model] = newFailure(code, message, fraction)
	})
}

// Hang makes the server accept inference calls and never answer them, or ends that. A call that hangs does so until
// its context ends. Readiness and health are answered as ever.
func (s *Server) Hang(on bool) {
	s.update(func() { s.faults.hang = on })
}

// Drain makes the server behave as Triton does after SIGTERM: calls in flight are finished, new ones fail, for 50 ms with
// UNAVAILABLE and then with NOT_FOUND. Connections stay, and new ones are accepted. The server stays so until Kill, GracefulStop
// or Restart.
func (s *Server) Drain() {
	s.update(func() {
		if !s.faults.draining {
			s.faults.draining, s.faults.since = true, s.gpu.now
			s.news = true
		}
	})
}

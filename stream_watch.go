package mlbalancer

import (
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/mlbalancer/mlbalancer/internal/methods"
	"github.com/mlbalancer/mlbalancer/picker"
)

// watchedStream shows a stream's responses to the policy that placed it: when the first came, and on ModelStreamInfer what each says.
// Messages pass through as they are.
type watchedStream struct {
	grpc.ClientStream

	responses picker.Responses
	answered  bool                      // a response came; it belongs to whoever receives
	asked     atomic.Pointer[time.Time] // when the caller sent its first message
}

// watch has the responses to a call reported, if they are those of a model: of a method that infers, or that is known to name a model. It
// returns nil if not.
func watch(call *picker.Call, known methods.Method, named bool, desc *grpc.StreamDesc) *watchedStream {
	if call.Inspect != nil || !desc.ServerStreams || known.Class != methods.Infer && !named {
		return nil
	}
	s := &watchedStream{}
	s.responses.Answers = known.Answers
	call.Responses = &s.responses
	return s
}

// around puts the watch around a stream that was created, or not.
func (s *watchedStream) around(stream grpc.ClientStream, err error) (grpc.ClientStream, error) {
	if s == nil || err != nil {
		return stream, err
	}
	s.ClientStream = stream
	return s, nil
}

// SendMsg implements grpc.ClientStream.
func (s *watchedStream) SendMsg(m any) error {
	if s.asked.Load() == nil {
		now := time.Now()
		s.asked.CompareAndSwap(nil, &now)
	}
	return s.ClientStream.SendMsg(m)
}

// RecvMsg implements grpc.ClientStream.
func (s *watchedStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err == nil && s.responses.Counts() {
		s.received(m)
	}
	return err
}

func (s *watchedStream) received(m any) {
	judge := s.responses.Judge()
	var waited time.Duration
	if asked := s.asked.Load(); asked != nil && !s.answered {
		waited = time.Since(*asked)
	}
	s.answered = true
	if !s.responses.Answers {
		s.responses.Received(judge.Now(), waited, "", picker.Success)
		return
	}
	r, o := methods.ReadResponse(m, s.responses.Model()), picker.Success
	if r.Error != "" {
		o = judge.InBand(r.Error)
	}
	s.responses.Received(judge.Now(), waited, r.Model, o)
}

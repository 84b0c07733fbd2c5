package fleet

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer/internal/oip"
)

// infer answers one inference request, and counts it. A unary one is a call of its own: its trailer is that of the call.
func (s *Server) infer(ctx context.Context, req *oip.ModelInferRequest, unary bool) (*oip.ModelInferResponse, error) {
	var (
		g      *gpu
		t      *tally
		j      *job
		gone   chan struct{}
		report []byte
		err    error
	)
	s.update(func() {
		g, t, gone = s.gpu, s.tally, s.gone
		t.calls++
		if j, err = s.admit(req); err != nil {
			t.errors[status.Code(err)]++
			if unary {
				report = s.orca()
			}
		} else if unary {
			s.open++
		}
	})
	if err != nil {
		setTrailer(ctx, report)
		return nil, err
	}

	var finished chan struct{} // of a call that hangs: never
	if j != nil {
		finished = j.finished
	}
	select {
	case <-finished:
	case <-ctx.Done():
		err = status.FromContextError(ctx.Err()).Err()
	case <-gone:
		err = errExiting
	}
	s.update(func() {
		if err != nil && j != nil && !g.cancel(j) {
			err = nil // it was finished at the last moment
		}
		if err != nil {
			t.errors[status.Code(err)]++
		} else {
			t.ok++
		}
		if unary {
			s.open--
			report = s.orca()
		}
	})
	setTrailer(ctx, report)
	if err != nil {
		return nil, err
	}
	return respond(req, s.Name(), j.cold), nil
}

// admit decides on a call that has just come in: its job, nil for one that hangs, or why it fails.
func (s *Server) admit(req *oip.ModelInferRequest) (*job, error) {
	model := req.GetModelName()
	if err := s.faults.drain(s.gpu.now, model); err != nil {
		return nil, err
	}
	if err := s.faults.strike(&s.draws, model); err != nil {
		s.gpu.fault(model)
		return nil, err
	}
	if s.faults.hang {
		return nil, nil
	}
	if err := s.find(model, req.GetModelVersion()); err != nil {
		return nil, err
	}
	work, err := s.work(req)
	if err != nil {
		return nil, err
	}
	j := s.gpu.submit(model, work)
	return j, refusal(j.err, model, req.GetModelVersion())
}

// work returns how long a request keeps a worker of normal speed busy: what it says itself, else a draw.
func (s *Server) work(req *oip.ModelInferRequest) (time.Duration, error) {
	p, ok := req.GetParameters()[WorkParameter]
	if !ok {
		mean := s.cfg.Service
		if s.cfg.ServiceCV > 0 {
			mean = s.draws.modelMean(mean, req.GetModelName())
		}
		return lognormal(s.draws.service, mean, s.cfg.ServiceCV), nil
	}
	us, ok := p.GetParameterChoice().(*oip.InferParameter_Int64Param)
	if !ok || us.Int64Param < 0 || us.Int64Param > maxWork.Microseconds() {
		return 0, status.Errorf(codes.InvalidArgument, "parameter '%s' is {%v}, want an int64 from 0 to %d microseconds",
			WorkParameter, p, maxWork.Microseconds())
	}
	return time.Duration(us.Int64Param) * time.Microsecond, nil
}

// respond returns the answer to a request: its inputs, and who answered.
func respond(req *oip.ModelInferRequest, server string, cold bool) *oip.ModelInferResponse {
	resp := &oip.ModelInferResponse{
		ModelName:    req.GetModelName(),
		ModelVersion: modelVersion,
		Id:           req.GetId(),
		Parameters: map[string]*oip.InferParameter{
			ServerParameter: {ParameterChoice: &oip.InferParameter_StringParam{StringParam: server}},
			ColdParameter:   {ParameterChoice: &oip.InferParameter_BoolParam{BoolParam: cold}},
		},
		RawOutputContents: req.GetRawInputContents(),
	}
	for _, in := range req.GetInputs() {
		resp.Outputs = append(resp.Outputs, &oip.ModelInferResponse_InferOutputTensor{
			Name: in.GetName(), Datatype: in.GetDatatype(), Shape: in.GetShape(), Contents: in.GetContents(),
		})
	}
	return resp
}

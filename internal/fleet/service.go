package fleet

import (
	"context"

	"github.com/mlbalancer/mlbalancer/internal/oip"
)

// service is a server's inference.GRPCInferenceService.
type service struct {
	oip.UnimplementedGRPCInferenceServiceServer
	server *Server
}

// ready says by way of a signal whether the server takes requests for every model that it is to serve. In explicit mode it is not
// ready while any model loads or unloads, nor after a load that failed: Triton's strict readiness, its default.
func (s *Server) ready(ctx context.Context, signal Signals) (ready bool, err error) {
	err = s.tell(ctx, signal, func() error {
		if s.faults.draining {
			return errExiting
		}
		ready = s.faults.ready(s.gpu.now) && (!s.cfg.Explicit || s.gpu.settled())
		return nil
	})
	return ready, err
}

// manage runs f under the server's lock unless the server drains.
func (s *Server) manage(f func() error) (err error) {
	s.update(func() { err = s.unlessDraining(f) })
	return err
}

// tellModels is tell for what OIP says of models, which a server that drains does not say.
func (s *Server) tellModels(ctx context.Context, f func() error) error {
	return s.tell(ctx, OIP, func() error { return s.unlessDraining(f) })
}

func (s *Server) unlessDraining(f func() error) error {
	if s.faults.draining {
		return errNotReady
	}
	return f()
}

func (v *service) ServerLive(ctx context.Context, _ *oip.ServerLiveRequest) (*oip.ServerLiveResponse, error) {
	if _, err := v.server.ready(ctx, OIP); err != nil {
		return nil, err
	}
	return &oip.ServerLiveResponse{Live: true}, nil
}

func (v *service) ServerReady(ctx context.Context, _ *oip.ServerReadyRequest) (*oip.ServerReadyResponse, error) {
	ready, err := v.server.ready(ctx, OIP)
	if err != nil {
		return nil, err
	}
	return &oip.ServerReadyResponse{Ready: ready}, nil
}

func (v *service) ServerMetadata(context.Context, *oip.ServerMetadataRequest) (*oip.ServerMetadataResponse, error) {
	return &oip.ServerMetadataResponse{
		Name:       v.server.Name(),
		Version:    "simulated",
		Extensions: []string{"model_repository", "parameters", "statistics"},
	}, nil
}

func (v *service) ModelReady(ctx context.Context, req *oip.ModelReadyRequest) (*oip.ModelReadyResponse, error) {
	resp := &oip.ModelReadyResponse{}
	err := v.server.tellModels(ctx, func() error {
		m := v.server.told(OIP)[req.GetName()]
		resp.Ready = m != nil && m.state == resident && (req.GetVersion() == "" || req.GetVersion() == modelVersion)
		return nil
	})
	return resp, err
}

func (v *service) ModelMetadata(_ context.Context, req *oip.ModelMetadataRequest) (*oip.ModelMetadataResponse, error) {
	err := v.server.manage(func() error {
		if err := v.server.find(req.GetName(), req.GetVersion()); err != nil {
			return err
		}
		if !v.server.cfg.Explicit {
			return nil
		}
		return refusal(v.server.gpu.serving(req.GetName()), req.GetName(), req.GetVersion())
	})
	if err != nil {
		return nil, err
	}
	return &oip.ModelMetadataResponse{
		Name:     req.GetName(),
		Versions: []string{modelVersion},
		Platform: "simulated",
		Inputs:   []*oip.ModelMetadataResponse_TensorMetadata{{Name: "input", Datatype: "FP32", Shape: []int64{-1}}},
		Outputs:  []*oip.ModelMetadataResponse_TensorMetadata{{Name: "input", Datatype: "FP32", Shape: []int64{-1}}},
	}, nil
}

func (v *service) ModelInfer(ctx context.Context, req *oip.ModelInferRequest) (*oip.ModelInferResponse, error) {
	return v.server.infer(ctx, req, true)
}

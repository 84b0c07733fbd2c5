package fleet

import (
	"time"

	"github.com/mlbalancer/mlbalancer/internal/oip"
)

// WorkParameter is the request parameter (int64) that says how many microseconds of model time the request keeps a worker busy, on
// a server of normal speed. A request's work belongs to the request: it takes as long wherever it is sent.
const WorkParameter = "work_us"

const (
	// maxWork bounds the work that a request may ask for.
	maxWork = 24 * time.Hour
	// modelVersion is the one version that every model has.
	modelVersion = "1"
)

// Parameters of each response.
const (
	// ServerParameter (string) is the name of the server that answered.
	ServerParameter = "server"
	// ColdParameter (bool) says whether the request had to wait for a load of its model.
	ColdParameter = "cold"
)

// NewRequest returns an inference request for a model with one small input tensor. work is how long it keeps a worker busy, in
// model time, to the microsecond; below 0 means that the server draws it.
func NewRequest(model string, work time.Duration) *oip.ModelInferRequest {
	req := &oip.ModelInferRequest{
		ModelName:        model,
		Inputs:           []*oip.ModelInferRequest_InferInputTensor{{Name: "input", Datatype: "FP32", Shape: []int64{1}}},
		RawInputContents: [][]byte{make([]byte, 4)},
	}
	if work >= 0 {
		req.Parameters = map[string]*oip.InferParameter{
			WorkParameter: {ParameterChoice: &oip.InferParameter_Int64Param{Int64Param: work.Microseconds()}},
		}
	}
	return req
}

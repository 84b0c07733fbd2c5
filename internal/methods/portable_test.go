package methods

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/mlbalancer/mlbalancer/internal/oip"
)

const (
	modelInfer  = "/inference.GRPCInferenceService/ModelInfer"
	predictions = "/org.pytorch.serve.grpc.inference.InferenceAPIsService/Predictions"
	predict     = "/tensorflow.serving.PredictionService/Predict"
)

type (
	params  = map[string]*oip.InferParameter
	inputs  = []*oip.ModelInferRequest_InferInputTensor
	outputs = []*oip.ModelInferRequest_InferRequestedOutputTensor
)

func param(s string) *oip.InferParameter {
	return &oip.InferParameter{ParameterChoice: &oip.InferParameter_StringParam{StringParam: s}}
}

func TestPortable(t *testing.T) {
	tensor := func(p params) *oip.ModelInferRequest_InferInputTensor {
		return &oip.ModelInferRequest_InferInputTensor{Name: "shared_memory_region", Shape: []int64{1, 4}, Parameters: p}
	}
	output := func(p params) *oip.ModelInferRequest_InferRequestedOutputTensor {
		return &oip.ModelInferRequest_InferRequestedOutputTensor{Name: "sequence_id", Parameters: p}
	}
	shared := params{"shared_memory_region": param("r")}
	none := params{"priority": param("sequence_id"), "timeout": param("1")}
	for name, tc := range map[string]struct {
		msg  *oip.ModelInferRequest
		want bool
	}{
		"empty": {&oip.ModelInferRequest{}, true},
		"plain": {&oip.ModelInferRequest{
			ModelName: "sequence_id", Id: "sequence_start", Parameters: none, Inputs: inputs{tensor(nil), tensor(none)},
			Outputs: outputs{output(none)}, RawInputContents: [][]byte{make([]byte, 16)},
		}, true},
		"sequence":                {&oip.ModelInferRequest{Parameters: params{"priority": nil, "sequence_id": param("7")}}, false},
		"start of sequence":       {&oip.ModelInferRequest{Parameters: params{"sequence_start": nil}}, false},
		"end of sequence":         {&oip.ModelInferRequest{Parameters: params{"sequence_end": nil}}, false},
		"input in shared memory":  {&oip.ModelInferRequest{Inputs: inputs{tensor(nil), tensor(shared)}}, false},
		"output in shared memory": {&oip.ModelInferRequest{Outputs: outputs{output(nil), output(shared)}}, false},
	} {
		wire := encode(t, tc.msg)
		for _, method := range []string{modelInfer, "/org.pytorch.serve.grpc.openinference.GRPCInferenceService/ModelInfer"} {
			assert.Equal(t, tc.want, Portable(method, tc.msg), name)
			assert.Equal(t, tc.want, Portable(method, wire), "%s, encoded", name)
			assert.Equal(t, tc.want, Portable(method, &wire), "%s, pointer to encoded", name)
		}

		// Generated code that is older than the fields has them in encoded form.
		old := &emptypb.Empty{}
		assert.NoError(t, proto.Unmarshal(wire, old))
		assert.Equal(t, tc.want, Portable(modelInfer, old), "%s, unknown fields", name)

		assert.True(t, Portable("/inference.GRPCInferenceService/ModelReady", tc.msg), "%s: of another method", name)
	}
}

func TestPortableOfOtherServers(t *testing.T) {
	message := schema(t, "Spec: string name=1", "Entry: string key=1, bytes value=2",
		"PredictionsRequest: string model_name=1, string model_version=2, optional string sequenceId=4",
		"PredictRequest: Spec model_spec=1, repeated Entry inputs=2, repeated string output_filter=3")

	one := message("PredictionsRequest")
	set(one, "model_name", "sequence_id")
	assert.True(t, Portable(predictions, one))
	assert.True(t, Portable(predictions, encode(t, one)))
	set(one, "sequenceId", "")
	assert.True(t, Portable(predictions, one), "set to nothing")
	assert.True(t, Portable(predictions, encode(t, one)), "set to nothing")
	set(one, "sequenceId", "a")
	assert.False(t, Portable(predictions, one))
	assert.False(t, Portable(predictions, encode(t, one)))

	for input, want := range map[string]bool{"x": true, "sequence_id": false, "sequence_control_input": false} {
		two := message("PredictRequest")
		set(two, "model_spec.name", "sequence_id")
		set(two, "inputs.key", "y")
		set(two, "inputs.key", input)
		assert.Equal(t, want, Portable(predict, two), input)
		assert.Equal(t, want, Portable(predict, encode(t, two)), input)
	}
}

func TestPortableOfWhatCannotBeRead(t *testing.T) {
	good := encode(t, &oip.ModelInferRequest{ModelName: "m"})
	for name, msg := range map[string]any{
		"nil": nil, "number": 1, "nil pointer": (*[]byte)(nil), "cut short": good[:2], "cut after": join(good, []byte{0x22}),
		"corrupt parameter": field(4, []byte{0x0a, 0x7f}), "foreign": &foreignParameters{Bad: "x"},
	} {
		assert.False(t, Portable(modelInfer, msg), name)
		assert.True(t, Portable("/fmaas.GenerationService/Generate", msg), name)
	}
	assert.True(t, Portable(modelInfer, (*oip.ModelInferRequest)(nil)), "a nil message is an empty one")
	assert.True(t, Portable(modelInfer, []byte(nil)), "an empty message")
	assert.True(t, Portable(modelInfer, &legacyRequest{}), "generated code from before reflection")
	assert.False(t, Portable(predictions, &legacySequence{ID: "a"}))
}

// foreignParameters has parameters of a type that protobuf cannot adapt.
type foreignParameters struct {
	Bad string `protobuf:"varint,4,opt,name=bad,proto3"`
}

func (*foreignParameters) Reset()         {}
func (*foreignParameters) String() string { return "" }
func (*foreignParameters) ProtoMessage()  {}

type legacySequence struct {
	ID string `protobuf:"bytes,4,opt,name=id,proto3"`
}

func (*legacySequence) Reset()         {}
func (*legacySequence) String() string { return "" }
func (*legacySequence) ProtoMessage()  {}

func TestTiesAreOfKnownMethods(t *testing.T) {
	for method, ts := range ties {
		m, ok := Lookup(method)
		assert.True(t, ok && m.Class == Infer && !m.Streaming, method)
		assert.NotEmpty(t, ts, method)
	}
}

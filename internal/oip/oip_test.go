package oip

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// TestNothingIsRegisteredGlobally: a program that links this package may also link a user's stubs of inference.*.
func TestNothingIsRegisteredGlobally(t *testing.T) {
	protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		assert.NotEqual(t, protoreflect.FullName("inference"), f.Package(), f.Path())
		return true
	})
	messages := File_oip_proto.Messages()
	require.NotZero(t, messages.Len())
	for i := range messages.Len() {
		name := messages.Get(i).FullName()
		_, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
		assert.ErrorIs(t, err, protoregistry.NotFound, name)
		_, err = protoregistry.GlobalTypes.FindMessageByName(name)
		assert.ErrorIs(t, err, protoregistry.NotFound, name)
		_, err = types.FindMessageByName(name)
		assert.NoError(t, err)
	}
}

// TestFieldNumbers pins the protocol's numbers, read off Triton's grpc_service.proto by hand.
func TestFieldNumbers(t *testing.T) {
	for message, want := range map[protoreflect.FullName]string{
		"ServerLiveRequest":                            "",
		"ServerLiveResponse":                           "live=1",
		"ServerReadyRequest":                           "",
		"ServerReadyResponse":                          "ready=1",
		"ServerMetadataRequest":                        "",
		"ServerMetadataResponse":                       "name=1 version=2 extensions=3",
		"ModelReadyRequest":                            "name=1 version=2",
		"ModelReadyResponse":                           "ready=1",
		"ModelMetadataRequest":                         "name=1 version=2",
		"ModelMetadataResponse":                        "name=1 versions=2 platform=3 inputs=4 outputs=5",
		"ModelMetadataResponse.TensorMetadata":         "name=1 datatype=2 shape=3",
		"InferParameter":                               "bool_param=1 int64_param=2 string_param=3 double_param=4 uint64_param=5",
		"InferTensorContents":                          "bool_contents=1 int_contents=2 int64_contents=3 uint_contents=4 uint64_contents=5 fp32_contents=6 fp64_contents=7 bytes_contents=8",
		"ModelInferRequest":                            "model_name=1 model_version=2 id=3 parameters=4 inputs=5 outputs=6 raw_input_contents=7",
		"ModelInferRequest.InferInputTensor":           "name=1 datatype=2 shape=3 parameters=4 contents=5",
		"ModelInferRequest.InferRequestedOutputTensor": "name=1 parameters=2",
		"ModelInferResponse":                           "model_name=1 model_version=2 id=3 parameters=4 outputs=5 raw_output_contents=6",
		"ModelInferResponse.InferOutputTensor":         "name=1 datatype=2 shape=3 parameters=4 contents=5",
		"ModelStreamInferResponse":                     "error_message=1 infer_response=2",
		"ModelStatisticsRequest":                       "name=1 version=2",
		"ModelStatisticsResponse":                      "model_stats=1",
		"ModelStatistics":                              "name=1 version=2 last_inference=3 inference_count=4 execution_count=5 inference_stats=6 batch_stats=7 memory_usage=8",
		"InferStatistics":                              "success=1 fail=2 queue=3 compute_input=4 compute_infer=5 compute_output=6 cache_hit=7 cache_miss=8",
		"InferBatchStatistics":                         "batch_size=1 compute_input=2 compute_infer=3 compute_output=4",
		"StatisticDuration":                            "count=1 ns=2",
		"MemoryUsage":                                  "type=1 id=2 byte_size=3",
		"ModelRepositoryParameter":                     "bool_param=1 int64_param=2 string_param=3 bytes_param=4",
		"RepositoryIndexRequest":                       "repository_name=1 ready=2",
		"RepositoryIndexResponse":                      "models=1",
		"RepositoryIndexResponse.ModelIndex":           "name=1 version=2 state=3 reason=4",
		"RepositoryModelLoadRequest":                   "repository_name=1 model_name=2 parameters=3",
		"RepositoryModelLoadResponse":                  "",
		"RepositoryModelUnloadRequest":                 "repository_name=1 model_name=2 parameters=3",
		"RepositoryModelUnloadResponse":                "",
	} {
		m, err := types.FindMessageByName("inference." + message)
		require.NoError(t, err, message)
		var got []string
		fields := m.Descriptor().Fields()
		for i := range fields.Len() {
			f := fields.Get(i)
			got = append(got, string(f.Name())+"="+string(rune('0'+f.Number())))
		}
		assert.Equal(t, want, strings.Join(got, " "), message)
	}
}

// request is a request with something in every field, but for the typed contents of its tensor.
func request() *ModelInferRequest {
	return &ModelInferRequest{
		ModelName:    "m",
		ModelVersion: "2",
		Id:           "x",
		Parameters:   map[string]*InferParameter{"w": {ParameterChoice: &InferParameter_Int64Param{Int64Param: 300}}},
		Inputs: []*ModelInferRequest_InferInputTensor{{
			Name: "i", Datatype: "FP32", Shape: []int64{1, 2},
			Parameters: map[string]*InferParameter{"b": {ParameterChoice: &InferParameter_BoolParam{BoolParam: true}}},
		}},
		Outputs:          []*ModelInferRequest_InferRequestedOutputTensor{{Name: "o"}},
		RawInputContents: [][]byte{{0xde, 0xad}, {}},
	}
}

func TestGoldenBytes(t *testing.T) {
	for _, tc := range []struct {
		name string
		msg  proto.Message
		want string // written by hand: tag, length, value
	}{
		{"request", request(), "0a01 6d" + // model_name
			"1201 32" + // model_version
			"1a01 78" + // id
			"2208 0a0177 1203 10ac02" + // parameters: key, value: int64_param 300
			"2a16 0a0169 120446503332 1a020102 2207 0a0162 1202 0801" + // inputs: name, datatype, packed shape, parameters
			"3203 0a016f" + // outputs
			"3a02 dead" + "3a00"}, // raw_input_contents
		{"response", &ModelInferResponse{
			ModelName: "m", ModelVersion: "1", Id: "x",
			Parameters: map[string]*InferParameter{"s": {ParameterChoice: &InferParameter_StringParam{StringParam: "v"}}},
			Outputs: []*ModelInferResponse_InferOutputTensor{{
				Name: "o", Datatype: "INT8", Shape: []int64{-1}, Contents: &InferTensorContents{IntContents: []int32{1}},
			}},
			RawOutputContents: [][]byte{{7}},
		}, "0a016d 120131 1a0178 2208 0a0173 1203 1a0176" +
			"2a1a 0a016f 1204494e5438 1a0a ffffffffffffffffff01 2a03 120101" +
			"3201 07"},
		{"stream response", &ModelStreamInferResponse{ErrorMessage: "e", InferResponse: &ModelInferResponse{Id: "x"}},
			"0a0165 1203 1a0178"},
		{"double parameter", &InferParameter{ParameterChoice: &InferParameter_DoubleParam{DoubleParam: 1}}, "21 000000000000f03f"},
		{"uint64 parameter", &InferParameter{ParameterChoice: &InferParameter_Uint64Param{Uint64Param: 1}}, "2801"},
		{"load", &RepositoryModelLoadRequest{RepositoryName: "r", ModelName: "m"}, "0a0172 12016d"},
		{"unload", &RepositoryModelUnloadRequest{
			ModelName:  "m",
			Parameters: map[string]*ModelRepositoryParameter{"d": {ParameterChoice: &ModelRepositoryParameter_BoolParam{BoolParam: true}}},
		}, "12016d 1a07 0a0164 1202 0801"},
		{"statistics", &ModelStatistics{
			Name: "m", LastInference: 5, InferenceStats: &InferStatistics{Queue: &StatisticDuration{Count: 1, Ns: 2}},
		}, "0a016d 1805 3206 1a04 0801 1002"},
		{"index", &RepositoryIndexResponse{Models: []*RepositoryIndexResponse_ModelIndex{{Name: "m", State: "READY"}}},
			"0a0a 0a016d 1a055245414459"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := proto.MarshalOptions{Deterministic: true}.Marshal(tc.msg)
			require.NoError(t, err)
			assert.Equal(t, strings.ReplaceAll(tc.want, " ", ""), hex.EncodeToString(got))
			back := tc.msg.ProtoReflect().New().Interface()
			require.NoError(t, proto.Unmarshal(got, back))
			assert.True(t, proto.Equal(tc.msg, back))
		})
	}
}

func TestUnknownFieldsAreSkipped(t *testing.T) {
	wire, err := proto.Marshal(request())
	require.NoError(t, err)
	wire = append(wire, 0xa2, 0x06, 0x03, 'n', 'e', 'w') // field 100
	var back ModelInferRequest
	require.NoError(t, proto.Unmarshal(wire, &back))
	assert.Equal(t, "m", back.GetModelName())
	assert.Len(t, back.GetRawInputContents(), 2)
}

// FuzzModelName: what the message says the model is, is what stands in field 1 on the wire, which is all that routing reads.
func FuzzModelName(f *testing.F) {
	wire, err := proto.Marshal(request())
	require.NoError(f, err)
	f.Add(wire)
	f.Add(append(wire, 0x0a, 0x01, 'n')) // the last one counts
	f.Add([]byte{0x0a, 0x05, 'm'})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, wire []byte) {
		var req ModelInferRequest
		if proto.Unmarshal(wire, &req) != nil {
			return
		}
		name := ""
		for len(wire) > 0 {
			num, typ, n := protowire.ConsumeTag(wire)
			require.Positive(t, n)
			wire = wire[n:]
			if num == 1 && typ == protowire.BytesType {
				v, n := protowire.ConsumeBytes(wire)
				require.Positive(t, n)
				name = string(v)
			}
			n = protowire.ConsumeFieldValue(num, typ, wire)
			require.GreaterOrEqual(t, n, 0)
			wire = wire[n:]
		}
		require.Equal(t, name, req.GetModelName())
	})
}

package methods

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/mlbalancer/mlbalancer/internal/oip"
)

func number(n int64) *oip.InferParameter {
	return &oip.InferParameter{ParameterChoice: &oip.InferParameter_Int64Param{Int64Param: n}}
}

func unsigned(n uint64) *oip.InferParameter {
	return &oip.InferParameter{ParameterChoice: &oip.InferParameter_Uint64Param{Uint64Param: n}}
}

func flag(v bool) *oip.InferParameter {
	return &oip.InferParameter{ParameterChoice: &oip.InferParameter_BoolParam{BoolParam: v}}
}

func TestReadSequence(t *testing.T) {
	for name, tc := range map[string]struct {
		p    params
		want Sequence
	}{
		"no parameters": {nil, Sequence{}},
		"others":        {params{"priority": number(7), "x": param("sequence_id")}, Sequence{}},
		"number":        {params{"priority": number(1), "sequence_id": number(7)}, Sequence{ID: SequenceID{Number: 7}}},
		"unsigned":      {params{"sequence_id": unsigned(1<<63 + 7)}, Sequence{ID: SequenceID{Number: 1<<63 + 7}}},
		"negative":      {params{"sequence_id": number(-1)}, Sequence{ID: SequenceID{Number: 1<<64 - 1}}},
		"text":          {params{"sequence_id": param("7")}, Sequence{ID: SequenceID{Text: "7"}}},
		"first":         {params{"sequence_id": number(7), "sequence_start": flag(true)}, Sequence{SequenceID{Number: 7}, true, false}},
		"last":          {params{"sequence_id": number(7), "sequence_end": flag(true)}, Sequence{SequenceID{Number: 7}, false, true}},
		"only one": {params{"sequence_id": param("a"), "sequence_start": flag(true), "sequence_end": flag(true)},
			Sequence{SequenceID{Text: "a"}, true, true}},
		"neither": {params{"sequence_id": param("a"), "sequence_start": flag(false), "sequence_end": number(1)},
			Sequence{ID: SequenceID{Text: "a"}}},
		"0":         {params{"sequence_id": number(0), "sequence_start": flag(true)}, Sequence{}},
		"empty":     {params{"sequence_id": param("")}, Sequence{}},
		"nothing":   {params{"sequence_id": nil, "sequence_start": nil}, Sequence{}},
		"no number": {params{"sequence_id": flag(true)}, Sequence{}},
		"no id":     {params{"sequence_start": flag(true)}, Sequence{}},
	} {
		msg := &oip.ModelInferRequest{ModelName: "m", Id: "sequence_id", Parameters: tc.p, RawInputContents: [][]byte{make([]byte, 16)}}
		wire := encode(t, msg)
		old := &emptypb.Empty{} // generated code that is older than the field
		assert.NoError(t, proto.Unmarshal(wire, old))
		for kind, msg := range map[string]any{"message": msg, "encoded": wire, "pointer to encoded": &wire, "unknown fields": old} {
			for _, method := range []string{modelInfer, "/org.pytorch.serve.grpc.openinference.GRPCInferenceService/ModelInfer"} {
				got, ok := ReadSequence(method, msg)
				assert.Equal(t, tc.want, got, "%s, %s", name, kind)
				assert.Equal(t, tc.want != Sequence{}, ok, "%s, %s", name, kind)
				assert.False(t, ok && Portable(method, msg), "%s, %s: it belongs to one server", name, kind)
			}
			for _, method := range []string{"/inference.GRPCInferenceService/ModelStreamInfer", predictions, ""} {
				_, ok := ReadSequence(method, msg)
				assert.False(t, ok, "%s of %s", name, method)
			}
		}
	}
}

// Generated code of some servers has no uint64_param.
func TestReadSequenceOfAnotherSchema(t *testing.T) {
	message := schema(t, "Parameter: bool bool_param=1, int64 int64_param=2, string string_param=3",
		"Entry: string key=1, Parameter value=2", "Request: string model_name=1, repeated Entry parameters=4")
	wire := encode(t, &oip.ModelInferRequest{Parameters: params{"sequence_id": unsigned(7)}})
	request := message("Request")
	assert.NoError(t, proto.Unmarshal(wire, request))
	_, ok := ReadSequence(modelInfer, request)
	assert.False(t, ok, "entries that are no map belong to no known server")

	var p parameter
	old := message("Parameter")
	assert.NoError(t, proto.Unmarshal(encode(t, unsigned(7)), old))
	assert.True(t, p.scan(old.ProtoReflect().GetUnknown()))
	assert.Equal(t, SequenceID{Number: 7}, p.id())
}

func TestReadSequenceOfWhatCannotBeRead(t *testing.T) {
	good := encode(t, &oip.ModelInferRequest{Parameters: params{"sequence_id": number(7)}})
	for name, msg := range map[string]any{
		"nil": nil, "number": 1, "nil pointer": (*[]byte)(nil), "nil message": (*oip.ModelInferRequest)(nil),
		"cut short": good[:len(good)-1], "cut after": join(good, []byte{0x22}), "corrupt entry": join(good, field(4, []byte{0x0a, 0x7f})),
		"corrupt value": field(4, field(2, []byte{0x10})), "foreign": &foreignParameters{Bad: "x"}, "legacy": &legacyRequest{},
	} {
		got, ok := ReadSequence(modelInfer, msg)
		assert.False(t, ok, name)
		assert.Zero(t, got, name)
	}
	twice := join(good, encode(t, &oip.ModelInferRequest{Parameters: params{"sequence_id": param("b")}}))
	got, _ := ReadSequence(modelInfer, twice)
	assert.Equal(t, SequenceID{Text: "b"}, got.ID, "the last one counts")
}

func TestReadSequenceAllocatesNothing(t *testing.T) {
	plain := &oip.ModelInferRequest{ModelName: "m", RawInputContents: [][]byte{make([]byte, 16)}}
	wire := encode(t, &oip.ModelInferRequest{ModelName: "m", Parameters: params{"sequence_id": number(7)}})
	for name, msg := range map[string]any{"plain": plain, "encoded": &wire} {
		assert.Zero(t, testing.AllocsPerRun(100, func() { ReadSequence(modelInfer, msg) }), name)
	}
}

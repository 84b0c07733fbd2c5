package methods

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// The request messages of the servers, by their own names for fields.
var serverMessages = []string{
	"ModelInferRequest: string model_name=1, string model_version=2, string id=3, repeated bytes raw_input_contents=7",
	"RepositoryModelLoadRequest: string repository_name=1, string model_name=2",
	"Int64Value: int64 value=1",
	"ModelSpec: string name=1, Int64Value version=2, string version_label=4",
	"PredictRequest: ModelSpec model_spec=1, bytes inputs=2",
	"InferenceTask: ModelSpec model_spec=1, string method_name=2",
	"MultiInferenceRequest: repeated InferenceTask tasks=1",
	"RecognitionConfig: uint32 encoding=1, string language_code=3, string model=13",
	"StreamingRecognitionConfig: RecognitionConfig config=1, bool interim_results=2",
	"RecognizeRequest: RecognitionConfig config=1, bytes audio=2",
	"StreamingRecognizeRequest: StreamingRecognitionConfig streaming_config=1, bytes audio_content=2",
	"RegisterModelRequest: uint32 batch_size=1, string handler=2, string model_name=5, string url=9",
}

func TestReadModelOfServers(t *testing.T) {
	type fields map[string]any
	const tf = "/tensorflow.serving.PredictionService/"
	rows := []struct {
		method, message string
		fields          fields
		want            string
	}{
		{"/inference.GRPCInferenceService/ModelInfer", "ModelInferRequest", fields{"model_name": "m", "id": "x"}, "m"},
		{"/inference.GRPCInferenceService/ModelInfer", "ModelInferRequest", fields{"model_name": "m", "model_version": "3"}, "m:3"},
		{"/inference.GRPCInferenceService/ModelInfer", "ModelInferRequest", fields{"model_version": "3"}, ""},
		{"/inference.GRPCInferenceService/ModelInfer", "ModelInferRequest", fields{}, ""},
		{"/inference.GRPCInferenceService/RepositoryModelLoad", "RepositoryModelLoadRequest",
			fields{"repository_name": "repo", "model_name": "m"}, "m"},
		{"/inference.GRPCInferenceService/RepositoryModelLoad", "RepositoryModelLoadRequest", fields{"repository_name": "repo"}, ""},
		{"/inference.GRPCInferenceService/SystemSharedMemoryRegister", "ModelInferRequest", fields{"model_name": "region"}, ""},
		{tf + "Predict", "PredictRequest", fields{"model_spec.name": "m"}, "m"},
		{tf + "Predict", "PredictRequest", fields{"model_spec.name": "m", "model_spec.version.value": int64(42)}, "m:42"},
		{tf + "Predict", "PredictRequest", fields{"model_spec.name": "m", "model_spec.version_label": "stable"}, "m:stable"},
		{tf + "Predict", "PredictRequest", fields{"model_spec.version_label": "stable"}, ""},
		{tf + "Predict", "PredictRequest", fields{"inputs": []byte("x")}, ""},
		{tf + "MultiInference", "MultiInferenceRequest", fields{"tasks.model_spec.name": "m"}, "m"},
		{"/nvidia.riva.asr.RivaSpeechRecognition/Recognize", "RecognizeRequest",
			fields{"config.language_code": "en-US", "config.model": "conformer", "audio": []byte("pcm")}, "conformer"},
		{"/nvidia.riva.asr.RivaSpeechRecognition/StreamingRecognize", "StreamingRecognizeRequest",
			fields{"streaming_config.config.model": "conformer"}, "conformer"},
		{"/nvidia.riva.asr.RivaSpeechRecognition/StreamingRecognize", "StreamingRecognizeRequest",
			fields{"audio_content": []byte("pcm")}, ""},
		{"/org.pytorch.serve.grpc.management.ManagementAPIsService/RegisterModel", "RegisterModelRequest",
			fields{"model_name": "m", "url": "m.mar"}, "m"},
	}
	message := schema(t, serverMessages...)
	for _, r := range rows {
		m, ok := Lookup(r.method)
		require.True(t, ok, r.method)
		msg := message(r.message)
		for path, value := range r.fields {
			set(msg, path, value)
		}
		wire := encode(t, msg)
		assert.Equal(t, r.want, m.ReadModel(msg), "%s %v", r.method, r.fields)
		assert.Equal(t, r.want, m.ReadModel(wire), "%s %v encoded", r.method, r.fields)
		assert.Equal(t, r.want, m.ReadModel(&wire), "%s %v encoded, by pointer", r.method, r.fields)

		old := &emptypb.Empty{} // knows no field: all of them are kept encoded
		require.NoError(t, proto.Unmarshal(wire, old))
		assert.Equal(t, r.want, m.ReadModel(old), "%s %v in a message without the fields", r.method, r.fields)
	}
}

func TestReadModelOfGeneratedCode(t *testing.T) {
	file := &descriptorpb.FileDescriptorProto{
		Name: proto.String("m"), Package: proto.String("3"), Dependency: []string{"a", "b"},
		Options: &descriptorpb.FileOptions{JavaPackage: proto.String("nested")},
		MessageType: []*descriptorpb.DescriptorProto{{Name: proto.String("first")}, {Name: proto.String("last")},
			{Field: []*descriptorpb.FieldDescriptorProto{{}}}},
	}
	for path, want := range map[string]string{
		"1":     "m",
		"8.1":   "nested",
		"3":     "b",    // last element
		"4.1":   "last", // last element that has the field
		"8":     "",     // a message
		"1.1":   "",     // below a string
		"8.9":   "",     // an enum
		"8.999": "",     // no such field
		"5.1":   "",     // an empty list
	} {
		p, err := ParsePath(path)
		require.NoError(t, err)
		assert.Equal(t, want, Method{Model: p}.ReadModel(file), path)
		if path != "8" { // encoded, a message looks like a string
			assert.Equal(t, want, Method{Model: p}.ReadModel(encode(t, file)), "%s encoded", path)
		}
	}
	assert.Equal(t, "m:3", Method{Model: Path{1}, Version: Path{2}}.ReadModel(file))
	assert.Equal(t, "raw", Method{Model: Path{1}}.ReadModel(wrapperspb.Bytes([]byte("raw"))))
	assert.Equal(t, "", Method{Model: Path{1}}.ReadModel(wrapperspb.Int64(3)), "a name is no integer")
	assert.Equal(t, "", Method{Model: Path{1}}.ReadModel((*wrapperspb.StringValue)(nil)))
}

func TestReadModelVersion(t *testing.T) {
	message := schema(t, "Request: string name=1, string label=2, int64 i64=3, uint32 u32=4, fixed32 f32=5, repeated int64 many=6")
	request := func(fields map[string]any) *dynamicpb.Message {
		msg := message("Request")
		set(msg, "name", "m")
		for path, value := range fields {
			set(msg, path, value)
		}
		return msg
	}
	both := Method{Model: Path{1}, Version: Path{2}, VersionNumber: Path{3}}
	for _, r := range []struct {
		method Method
		fields map[string]any
		want   string
	}{
		{both, nil, "m"},
		{both, map[string]any{"label": "stable"}, "m:stable"},
		{both, map[string]any{"i64": int64(7)}, "m:7"},
		{both, map[string]any{"i64": int64(-7)}, "m:-7"},
		{both, map[string]any{"i64": int64(0), "label": "stable"}, "m:stable"},
		{both, map[string]any{"i64": int64(7), "label": "stable"}, "m:7"},
		{Method{Model: Path{1}, VersionNumber: Path{4}}, map[string]any{"u32": uint32(7)}, "m:7"},
		{Method{Model: Path{1}, VersionNumber: Path{5}}, map[string]any{"f32": uint32(7)}, "m"}, // not a varint
		{Method{Model: Path{1}, VersionNumber: Path{2}}, map[string]any{"label": "7"}, "m"},
		{Method{Model: Path{1}, Version: Path{3}}, map[string]any{"i64": int64(7)}, "m"},
	} {
		msg := request(r.fields)
		assert.Equal(t, r.want, r.method.ReadModel(msg), "%v", r.fields)
		assert.Equal(t, r.want, r.method.ReadModel(encode(t, msg)), "%v encoded", r.fields)
	}
}

func TestReadModelBounds(t *testing.T) {
	m := Method{Model: Path{1}, Version: Path{2}}
	long := strings.Repeat("x", MaxModel)
	for _, r := range []struct{ name, version, want string }{
		{long, "", long},
		{long + "x", "", ""},
		{long[:MaxModel-2], "1", long[:MaxModel-2] + ":1"},
		{long, "1", ""},
		{"m", long + "x", ""},
		{strings.Repeat("x", 1<<20), "", ""},
	} {
		msg := &descriptorpb.FileDescriptorProto{Name: &r.name, Package: &r.version}
		assert.Equal(t, r.want, m.ReadModel(msg), "%d+%d bytes", len(r.name), len(r.version))
		assert.Equal(t, r.want, m.ReadModel(encode(t, msg)), "%d+%d bytes encoded", len(r.name), len(r.version))
	}
	assert.Equal(t, "", m.ReadModel(wrapperspb.Bytes([]byte("\xff"))), "not UTF-8")
	assert.Equal(t, "", m.ReadModel([]byte("\x0a\x01\xff")), "not UTF-8, encoded")
}

func TestReadModelOfOtherKinds(t *testing.T) {
	m := Method{Model: Path{1}}
	for _, msg := range []any{nil, 1, "m", struct{}{}, (*[]byte)(nil), []byte(nil), []string{"m"}, &struct{ Name string }{"m"}} {
		assert.Equal(t, "", m.ReadModel(msg), "%T", msg)
	}
	assert.Equal(t, "", Method{}.ReadModel(wrapperspb.String("m")), "no path")
}

// What is read must outlive the message's buffer, which its owner may reuse.
func TestReadModelCopiesFromWire(t *testing.T) {
	wire := encode(t, wrapperspb.String("model"))
	got := Method{Model: Path{1}}.ReadModel(wire)
	clear(wire)
	assert.Equal(t, "model", got)
}

func TestReadModelDoesNotAllocate(t *testing.T) {
	nested := &descriptorpb.FileDescriptorProto{Options: &descriptorpb.FileOptions{JavaPackage: proto.String("m")}}
	flat := wrapperspb.String("m")
	infer, _ := Lookup("/inference.GRPCInferenceService/ModelInfer")
	assert.Zero(t, testing.AllocsPerRun(100, func() { infer.ReadModel(flat) }))
	deep := Method{Model: Path{8, 1}, Version: Path{8, 2}}
	assert.Zero(t, testing.AllocsPerRun(100, func() { deep.ReadModel(nested) }))
	wire := encode(t, wrapperspb.String("model"))
	assert.EqualValues(t, 1, testing.AllocsPerRun(100, func() { infer.ReadModel(&wire) }), "the copy")
}

// legacySpec and legacyRequest are what generated code looked like before it had reflection.
type legacySpec struct {
	Name string `protobuf:"bytes,1,opt,name=name,proto3"`
}

func (*legacySpec) Reset()         {}
func (*legacySpec) String() string { return "" }
func (*legacySpec) ProtoMessage()  {}

type legacyRequest struct {
	Spec *legacySpec `protobuf:"bytes,1,opt,name=spec,proto3"`
	ID   string      `protobuf:"bytes,3,opt,name=id,proto3"`
}

func (*legacyRequest) Reset()         {}
func (*legacyRequest) String() string { return "" }
func (*legacyRequest) ProtoMessage()  {}

// foreignRequest has a field of a type that protobuf cannot adapt.
type foreignRequest struct {
	Name string    `protobuf:"bytes,1,opt,name=name,proto3"`
	Bad  complex64 `protobuf:"bytes,2,opt,name=bad,proto3"`
}

func (*foreignRequest) Reset()         {}
func (*foreignRequest) String() string { return "" }
func (*foreignRequest) ProtoMessage()  {}

func TestReadModelOfLegacyCode(t *testing.T) {
	m := Method{Model: Path{1, 1}}
	assert.Equal(t, "m", m.ReadModel(&legacyRequest{Spec: &legacySpec{Name: "m"}, ID: "x"}))
	assert.Equal(t, "", m.ReadModel(&legacyRequest{}))
	assert.Equal(t, "", m.ReadModel((*legacyRequest)(nil)))
	assert.NotPanics(t, func() { Method{Model: Path{1}}.ReadModel(&foreignRequest{Name: "m"}) })
}

func BenchmarkReadModel(b *testing.B) {
	infer, _ := Lookup("/inference.GRPCInferenceService/ModelInfer")
	message := schema(b, serverMessages...)
	msg := message("ModelInferRequest")
	set(msg, "model_name", "gpt-4-turbo-2024-04-09")
	flat := wrapperspb.String("gpt-4-turbo-2024-04-09")
	run := func(name string, msg any) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				infer.ReadModel(msg)
			}
		})
	}
	run("generated", flat)
	run("dynamic", msg)
	run("wire", encode(b, msg))
	tensors := encode(b, flat)
	for range 4 {
		tensors = append(tensors, 0x3a, 0x80, 0x80, 0x40) // field 7, 1 MiB
		tensors = append(tensors, make([]byte, 1<<20)...)
	}
	run("wire-4MiB-tensors", tensors)
	run("wire-4MiB-hostile", append(encode(b, flat), []byte(strings.Repeat("\x18\x01", 2<<20))...)) // nothing but tiny fields
}

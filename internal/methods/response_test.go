package methods

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/mlbalancer/mlbalancer/internal/oip"
)

var (
	answered = &oip.ModelInferResponse{ModelName: "m", ModelVersion: "1", Id: "7", RawOutputContents: [][]byte{[]byte("tensor")}}
	wrapped  = &oip.ModelStreamInferResponse{InferResponse: answered}
	failed   = &oip.ModelStreamInferResponse{ErrorMessage: "boom", InferResponse: &oip.ModelInferResponse{ModelName: "m", Id: "7"}}
	bare     = &oip.ModelStreamInferResponse{ErrorMessage: "boom"}
	nameless = &oip.ModelStreamInferResponse{ErrorMessage: "boom", InferResponse: &oip.ModelInferResponse{Id: "7"}}
)

// Both types, as Go messages and encoded, say the same.
func TestReadResponse(t *testing.T) {
	for name, tc := range map[string]struct {
		msg  proto.Message
		want Response
	}{
		"response":                    {answered, Response{Model: "m"}},
		"response without a version":  {&oip.ModelInferResponse{ModelName: "m", Id: "7"}, Response{Model: "m"}},
		"response with outputs alone": {&oip.ModelInferResponse{ModelName: "m", Outputs: []*oip.ModelInferResponse_InferOutputTensor{{Name: "o"}}}, Response{Model: "m"}},
		"response of few fields":      {&oip.ModelInferResponse{ModelName: "m", ModelVersion: "1"}, Response{Model: "m"}},
		"response, version 80":        {&oip.ModelInferResponse{ModelName: "m", ModelVersion: "80"}, Response{Model: "m"}},
		"response, version v2":        {&oip.ModelInferResponse{ModelName: "m", ModelVersion: "v2"}, Response{Model: "m"}},
		"wrapped":                     {wrapped, Response{Model: "m"}},
		"failed":                      {failed, Response{Model: "m", Error: "boom"}},
		"failed without a response":   {bare, Response{Error: "boom"}},
		"failed without a model":      {nameless, Response{Error: "boom"}},
		"empty":                       {&oip.ModelStreamInferResponse{}, Response{}},
		"too long a name":             {&oip.ModelInferResponse{ModelName: strings.Repeat("m", MaxModel+1), Id: "7"}, Response{}},
	} {
		t.Run(name, func(t *testing.T) {
			b := encode(t, tc.msg)
			before := string(b)
			for _, known := range []string{"", "m", "other"} {
				assert.Equal(t, tc.want, ReadResponse(tc.msg, known))
				assert.Equal(t, tc.want, ReadResponse(b, known), "encoded")
				assert.Equal(t, tc.want, ReadResponse(&b, known), "encoded, by pointer")
			}
			assert.Equal(t, before, string(b))
			unknown := &emptypb.Empty{}
			if assert.NoError(t, proto.Unmarshal(b, unknown)) {
				assert.Equal(t, tc.want, ReadResponse(unknown, "m"), "as unknown fields")
			}
		})
	}
}

// A response that was decoded into the other type is no error.
func TestReadResponseOfTheOtherType(t *testing.T) {
	b := encode(t, &oip.ModelInferResponse{ModelName: "m", Id: "7", RawOutputContents: [][]byte{[]byte("tensor")}})
	var msg oip.ModelStreamInferResponse
	assert.NoError(t, proto.Unmarshal(b, &msg))
	assert.Equal(t, "m", msg.ErrorMessage, "so it looks to who expects a wrapper")
	assert.Equal(t, Response{Model: "m"}, ReadResponse(&msg, ""))
}

func TestReadResponseOfOtherKinds(t *testing.T) {
	var none *[]byte
	text := encode(t, bare)
	varint := protowire.AppendVarint(protowire.AppendTag(nil, 3, protowire.VarintType), 5)
	for name, msg := range map[string]any{
		"nil": nil, "nil pointer": none, "a struct": struct{}{}, "a text": "boom",
		"another message": wrapperspb.String("boom"), "bytes": wrapperspb.Bytes([]byte("boom")),
		"cut short": text[:3], "a field of another type": append(text[:len(text):len(text)], varint...),
		"a field of neither": append(text[:len(text):len(text)], field(9, []byte("x"))...),
	} {
		assert.Equal(t, Response{}, ReadResponse(msg, "m"), name)
	}
	assert.Equal(t, Response{}, ReadResponse(schema(t, "T: string a=1, repeated T b=2")("T"), "m"))
	assert.Equal(t, Response{}, ReadResponse(schema(t, "T: int64 a=1, string b=2")("T"), "m"))
	assert.Equal(t, Response{}, ReadResponse(schema(t, "T: string a=1, int64 b=2")("T"), "m"))
}

func TestReadResponseDoesNotAllocate(t *testing.T) {
	encoded, response := encode(t, wrapped), encode(t, answered)
	for name, msg := range map[string]any{
		"response": answered, "wrapped": wrapped, "failed": failed, "encoded": &encoded, "response, encoded": &response,
	} {
		assert.Zero(t, testing.AllocsPerRun(100, func() { ReadResponse(msg, "m") }), name)
	}
}

// No message of one type is ever read as the other, whatever is in it.
func FuzzResponse(f *testing.F) {
	f.Add("m", "1", "7", []byte("tensor"), "boom")
	f.Add("m", "", "", []byte(nil), "")
	f.Add("m", "80", "", []byte(nil), "boom")
	f.Fuzz(func(t *testing.T, name, version, id string, raw []byte, text string) {
		r := &oip.ModelInferResponse{ModelName: name, ModelVersion: version, Id: id}
		if len(raw) > 0 {
			r.RawOutputContents = [][]byte{raw}
		}
		b, err := proto.Marshal(r)
		if err != nil {
			return // a text that is not UTF-8
		}
		if id != "" || len(raw) > 0 {
			assert.Empty(t, ReadResponse(b, "m").Error, "%q", b)
		}
		w := &oip.ModelStreamInferResponse{ErrorMessage: text, InferResponse: r}
		if b, err = proto.Marshal(w); err == nil {
			assert.Equal(t, ReadResponse(w, "m"), ReadResponse(b, "m"))
			assert.Equal(t, text, ReadResponse(b, "m").Error)
		}
	})
}

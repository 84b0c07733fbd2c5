package methods

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Portable reports whether one server may answer a call of a method as well as another. It may not where the request belongs to
// a sequence, whose server remembers what came before, or points into shared memory, which is one host's. A msg of a kind that
// cannot be read, or a corrupt one, is not portable if its method knows either. Methods that know neither are portable whatever
// msg is. It takes the same kinds of msg as ReadModel and does not change them.
func Portable(fullMethod string, msg any) bool {
	for _, t := range ties[fullMethod] {
		if t.holds(msg) {
			return false
		}
	}
	return true
}

// tie is what ties a request to one server: a text in it.
type tie struct {
	path Path   // to the text; the entries of a map are messages whose field 1 is the key
	text string // empty for any that is not empty
}

// openInferenceTies are of ModelInferRequest: parameters, inputs[].parameters and outputs[].parameters.
var openInferenceTies = []tie{
	{Path{4, 1}, "sequence_id"}, {Path{4, 1}, "sequence_start"}, {Path{4, 1}, "sequence_end"},
	{Path{5, 4, 1}, "shared_memory_region"}, {Path{6, 2, 1}, "shared_memory_region"},
}

var ties = map[string][]tie{
	"/inference.GRPCInferenceService/ModelInfer":                            openInferenceTies,
	"/org.pytorch.serve.grpc.openinference.GRPCInferenceService/ModelInfer": openInferenceTies,
	// TorchServe: PredictionsRequest.sequenceId.
	"/org.pytorch.serve.grpc.inference.InferenceAPIsService/Predictions": {{path: Path{4}}},
	// OpenVINO Model Server has stateful models over this API: PredictRequest.inputs.
	"/tensorflow.serving.PredictionService/Predict": {{Path{2, 1}, "sequence_id"}, {Path{2, 1}, "sequence_control_input"}},
}

// holds reports whether msg has the text, or cannot be read.
func (t *tie) holds(msg any) bool {
	switch msg := msg.(type) {
	case proto.Message:
		return t.inMessage(msg.ProtoReflect(), t.path)
	case []byte:
		return t.onWire(msg, t.path)
	case *[]byte:
		return msg == nil || t.onWire(*msg, t.path)
	case protoadapt.MessageV1:
		return t.inLegacy(msg)
	}
	return true
}

// inLegacy is inMessage for what protobuf can adapt; on other types it panics.
func (t *tie) inLegacy(msg protoadapt.MessageV1) (holds bool) {
	defer func() {
		if recover() != nil {
			holds = true
		}
	}()
	return t.inMessage(protoadapt.MessageV2Of(msg).ProtoReflect(), t.path)
}

func (t *tie) inMessage(r protoreflect.Message, p Path) bool {
	fd := r.Descriptor().Fields().ByNumber(p[0])
	switch {
	case fd == nil: // generated code that is older than the field keeps it in encoded form
		return t.onWire(r.GetUnknown(), p)
	case !r.Has(fd):
		return false
	case fd.IsMap():
		return t.inKeys(r.Get(fd).Map(), p[1:])
	case !fd.IsList():
		return t.inValue(fd, r.Get(fd), p[1:])
	}
	list := r.Get(fd).List()
	for i := range list.Len() {
		if t.inValue(fd, list.Get(i), p[1:]) {
			return true
		}
	}
	return false
}

func (t *tie) inKeys(m protoreflect.Map, rest Path) (holds bool) {
	if len(rest) != 1 || rest[0] != 1 {
		return false
	}
	m.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		holds = t.is(k.String())
		return !holds
	})
	return holds
}

func (t *tie) inValue(fd protoreflect.FieldDescriptor, v protoreflect.Value, rest Path) bool {
	switch {
	case fd.Kind() == protoreflect.MessageKind && len(rest) > 0:
		return t.inMessage(v.Message(), rest)
	case fd.Kind() == protoreflect.StringKind && len(rest) == 0:
		return t.is(v.String())
	}
	return false
}

// onWire looks for the text in an encoded message; a corrupt one might hold it.
func (t *tie) onWire(msg []byte, p Path) bool {
	for len(msg) > 0 {
		num, typ, n := protowire.ConsumeTag(msg)
		if n < 0 {
			return true
		}
		msg = msg[n:]
		if n = protowire.ConsumeFieldValue(num, typ, msg); n < 0 {
			return true
		}
		if num == p[0] && typ == protowire.BytesType {
			v, _ := protowire.ConsumeBytes(msg)
			if len(p) == 1 && t.is(string(v)) || len(p) > 1 && t.onWire(v, p[1:]) {
				return true
			}
		}
		msg = msg[n:]
	}
	return false
}

func (t *tie) is(s string) bool {
	if t.text == "" {
		return s != ""
	}
	return s == t.text
}

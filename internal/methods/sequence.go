package methods

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Sequence is what a request says of the sequence that it belongs to: a series of requests whose server remembers those before.
type Sequence struct {
	ID SequenceID
	// Start and End mark the first request of the sequence and the last.
	Start, End bool
}

// SequenceID is a sequence's id, which is a text or a number; to a server 7 and "7" are two sequences. The zero value is none.
type SequenceID struct {
	Text   string
	Number uint64
}

// ReadSequence returns what msg says of its sequence, and whether it belongs to one. It knows the ModelInfer methods of the
// Open Inference Protocol, with Triton's parameters sequence_id (a number other than 0, or a text that is not empty),
// sequence_start and sequence_end, and takes the same kinds of msg as ReadModel. A msg of another kind, or a corrupt one,
// belongs to none. A Go message without parameters costs no allocation.
func ReadSequence(fullMethod string, msg any) (s Sequence, ok bool) {
	switch fullMethod {
	case "/inference.GRPCInferenceService/ModelInfer", "/org.pytorch.serve.grpc.openinference.GRPCInferenceService/ModelInfer":
	default:
		return s, false
	}
	switch msg := msg.(type) {
	case proto.Message:
		ok = s.fromRequest(msg.ProtoReflect())
	case []byte:
		ok = s.scan(msg)
	case *[]byte:
		ok = msg != nil && s.scan(*msg)
	case protoadapt.MessageV1:
		ok = s.fromLegacy(msg)
	}
	if !ok || s.ID == (SequenceID{}) {
		return Sequence{}, false
	}
	return s, true
}

const (
	parametersField = 4 // of ModelInferRequest: map<string, InferParameter>

	sequenceIDKey, sequenceStartKey, sequenceEndKey = "sequence_id", "sequence_start", "sequence_end"
)

var (
	idMapKey    = protoreflect.ValueOfString(sequenceIDKey).MapKey()
	startMapKey = protoreflect.ValueOfString(sequenceStartKey).MapKey()
	endMapKey   = protoreflect.ValueOfString(sequenceEndKey).MapKey()
)

func (s *Sequence) fromLegacy(msg protoadapt.MessageV1) (ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	return s.fromRequest(protoadapt.MessageV2Of(msg).ProtoReflect())
}

func (s *Sequence) fromRequest(r protoreflect.Message) bool {
	fd := r.Descriptor().Fields().ByNumber(parametersField)
	switch {
	case fd == nil: // generated code that is older than the field keeps it in encoded form
		return s.scan(r.GetUnknown())
	case !fd.IsMap() || !r.Has(fd):
		return false
	case fd.MapKey().Kind() != protoreflect.StringKind || fd.MapValue().Kind() != protoreflect.MessageKind:
		return false
	}
	m := r.Get(fd).Map()
	var id, start, end parameter
	if !id.fromMap(m, idMapKey) {
		return false
	}
	s.ID = id.id()
	s.Start = start.fromMap(m, startMapKey) && start.flag
	s.End = end.fromMap(m, endMapKey) && end.flag
	return true
}

// scan reads the parameters of an encoded request, and reports false if it is corrupt.
func (s *Sequence) scan(msg []byte) bool {
	for len(msg) > 0 {
		num, typ, n := protowire.ConsumeTag(msg)
		if n < 0 {
			return false
		}
		msg = msg[n:]
		if n = protowire.ConsumeFieldValue(num, typ, msg); n < 0 {
			return false
		}
		if num == parametersField && typ == protowire.BytesType {
			if entry, _ := protowire.ConsumeBytes(msg); !s.scanEntry(entry) {
				return false
			}
		}
		msg = msg[n:]
	}
	return true
}

// scanEntry reads one entry of the parameters; of several with the same key the last one counts.
func (s *Sequence) scanEntry(entry []byte) bool {
	var key []byte
	var p parameter
	for len(entry) > 0 {
		num, typ, n := protowire.ConsumeTag(entry)
		if n < 0 {
			return false
		}
		entry = entry[n:]
		if n = protowire.ConsumeFieldValue(num, typ, entry); n < 0 {
			return false
		}
		if v, _ := protowire.ConsumeBytes(entry); typ == protowire.BytesType && num == 1 {
			key = v
		} else if typ == protowire.BytesType && num == 2 && !p.scan(v) {
			return false
		}
		entry = entry[n:]
	}
	switch string(key) {
	case sequenceIDKey:
		s.ID = p.id()
	case sequenceStartKey:
		s.Start = p.flag
	case sequenceEndKey:
		s.End = p.flag
	}
	return true
}

// parameter is the value of an InferParameter, a oneof: the last field that was set counts.
type parameter struct {
	flag   bool
	number uint64
	text   string
}

const (
	boolParam   = 1
	int64Param  = 2
	stringParam = 3
	doubleParam = 4
	uint64Param = 5
)

func (p *parameter) id() SequenceID { return SequenceID{Text: p.text, Number: p.number} }

// fromMap reads the entry of a key, and reports whether there is one.
func (p *parameter) fromMap(m protoreflect.Map, key protoreflect.MapKey) bool {
	v := m.Get(key)
	if !v.IsValid() {
		return false
	}
	r := v.Message()
	fields := r.Descriptor().Fields()
	for _, num := range [...]protowire.Number{boolParam, int64Param, stringParam, uint64Param} {
		fd := fields.ByNumber(num)
		if fd == nil || !r.Has(fd) {
			continue
		}
		switch fd.Kind() {
		case protoreflect.BoolKind:
			p.flag = r.Get(fd).Bool()
		case protoreflect.Int64Kind:
			p.number = uint64(r.Get(fd).Int())
		case protoreflect.Uint64Kind:
			p.number = r.Get(fd).Uint()
		case protoreflect.StringKind:
			p.text = r.Get(fd).String()
		}
	}
	return p.scan(r.GetUnknown()) // such as uint64_param, which not all generated code has
}

// scan reads an encoded InferParameter, and reports false if it is corrupt.
func (p *parameter) scan(b []byte) bool {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return false
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
			return false
		}
		switch {
		case num == stringParam && typ == protowire.BytesType:
			v, _ := protowire.ConsumeBytes(b)
			*p = parameter{text: string(v)}
		case num == boolParam && typ == protowire.VarintType:
			v, _ := protowire.ConsumeVarint(b)
			*p = parameter{flag: v != 0}
		case (num == int64Param || num == uint64Param) && typ == protowire.VarintType:
			v, _ := protowire.ConsumeVarint(b)
			*p = parameter{number: v}
		case num == doubleParam:
			*p = parameter{}
		}
		b = b[n:]
	}
	return true
}

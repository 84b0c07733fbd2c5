package methods

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Response is what a message that a server sends on ModelStreamInfer says. Two kinds of servers send two types of message there: Triton a
// wrapper of an error's text (field 1) and a response (field 2), MLServer the response itself, whose first two fields are the names of the
// model and of its version.
type Response struct {
	// Model is the name of the model that answered; empty if the message does not say.
	Model string
	// Error is the text of an error in place of an answer; empty if there is none.
	Error string
}

// The fields of both types, and of the response in the wrapper.
const (
	firstField  = 1 // wrapper: error_message; response: model_name
	secondField = 2 // wrapper: infer_response; response: model_version
	lastField   = 6 // of a response: raw_output_contents. All of its fields are strings, bytes or messages.
)

// ReadResponse reads a message that was received on ModelStreamInfer. A Go message is told by the kind of its field 2, an encoded one
// ([]byte or *[]byte) by what is in it: what has a text in field 1 is an error only if nothing but a response, in field 2, stands beside it.
// In doubt, and where msg is of any other kind or corrupt, it is no error. It keeps no reference to encoded bytes.
//
// known is the name of the model that is expected: where it is the one, nothing is allocated, unless the message is an error in encoded form.
func ReadResponse(msg any, known string) Response {
	switch msg := msg.(type) {
	case proto.Message:
		return responseIn(msg.ProtoReflect(), known)
	case []byte:
		return responseOnWire(msg, known)
	case *[]byte:
		if msg != nil {
			return responseOnWire(*msg, known)
		}
	case protoadapt.MessageV1:
		return legacyResponse(msg, known)
	}
	return Response{}
}

func legacyResponse(msg protoadapt.MessageV1, known string) (r Response) {
	defer func() {
		if recover() != nil { // protobuf cannot adapt it
			r = Response{}
		}
	}()
	return responseIn(protoadapt.MessageV2Of(msg).ProtoReflect(), known)
}

func responseIn(m protoreflect.Message, known string) Response {
	fields := m.Descriptor().Fields()
	first, second := fields.ByNumber(firstField), fields.ByNumber(secondField)
	switch {
	case first == nil && second == nil: // a message that keeps everything in encoded form
		return responseOnWire(m.GetUnknown(), known)
	case !isText(first) || second == nil || second.IsList():
		return Response{}
	}
	text := m.Get(first).String()
	switch second.Kind() {
	case protoreflect.StringKind:
		return Response{Model: validName(text)}
	case protoreflect.MessageKind:
		if text != "" && len(m.GetUnknown()) > 0 { // a response that was decoded as a wrapper has fields that no wrapper has
			return Response{Model: validName(text)}
		}
		return Response{Model: modelIn(m, second), Error: text}
	}
	return Response{}
}

// modelIn returns the name in the response that a wrapper holds.
func modelIn(m protoreflect.Message, response protoreflect.FieldDescriptor) string {
	if !m.Has(response) {
		return ""
	}
	r := m.Get(response).Message()
	if name := r.Descriptor().Fields().ByNumber(firstField); isText(name) {
		return validName(r.Get(name).String())
	}
	return ""
}

func isText(fd protoreflect.FieldDescriptor) bool {
	return fd != nil && fd.Kind() == protoreflect.StringKind && !fd.IsList()
}

func responseOnWire(msg []byte, known string) Response {
	m, ok := scanResponse(msg)
	if !ok {
		return Response{}
	}
	if m.more { // only a response has more than two fields
		return Response{Model: nameOf(m.first, known)}
	}
	inner, ok := scanResponse(m.second)
	switch {
	case !ok: // field 2 is a text
		return Response{Model: nameOf(m.first, known)}
	case len(m.first) == 0 && len(m.second) == 0:
		return Response{}
	}
	return Response{Model: nameOf(inner.first, known), Error: string(m.first)}
}

// scanned is what a message consists of.
type scanned struct {
	first, second []byte // the last of the fields 1 and 2; they alias the message
	more          bool   // there are others, up to lastField
}

// scanResponse takes a message apart. It returns false for what is neither type: corrupt, or with a field that neither has.
func scanResponse(msg []byte) (s scanned, ok bool) {
	for len(msg) > 0 {
		num, typ, n := protowire.ConsumeTag(msg)
		if n < 0 || num > lastField || typ != protowire.BytesType {
			return scanned{}, false
		}
		msg = msg[n:]
		v, n := protowire.ConsumeBytes(msg)
		if n < 0 {
			return scanned{}, false
		}
		switch num {
		case firstField:
			s.first = v
		case secondField:
			s.second = v
		default:
			s.more = true
		}
		msg = msg[n:]
	}
	return s, true
}

// nameOf returns a model's name, and copies it only if it is not the known one.
func nameOf(b []byte, known string) string {
	if string(b) == known {
		return known
	}
	return validName(short(b))
}

// validName returns a name that may be one of a model, or "".
func validName(s string) string {
	if valid(s) {
		return s
	}
	return ""
}

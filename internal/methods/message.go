package methods

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protoreflect"
)

func (m *Method) fromMessage(msg proto.Message) (name, version string) {
	r := msg.ProtoReflect()
	if name = textAt(r, m.Model); name == "" {
		return "", ""
	}
	if len(m.VersionNumber) > 0 {
		if version = numberAt(r, m.VersionNumber); version != "" {
			return name, version
		}
	}
	if len(m.Version) > 0 {
		version = textAt(r, m.Version)
	}
	return name, version
}

// fromLegacy reads a message of generated code from before protobuf had reflection. What protobuf cannot adapt (types with
// fields of their own making) it panics on: such messages name no model.
func (m *Method) fromLegacy(msg protoadapt.MessageV1) (name, version string) {
	defer func() {
		if recover() != nil {
			name, version = "", ""
		}
	}()
	return m.fromMessage(protoadapt.MessageV2Of(msg))
}

// textAt returns the string or bytes field that p leads to.
func textAt(r protoreflect.Message, p Path) string { return valueAt(r, p, text) }

// numberAt returns the integer field that p leads to, in decimal, and "" for 0.
func numberAt(r protoreflect.Message, p Path) string { return valueAt(r, p, integer) }

// valueAt returns the last value of the wanted kind that p leads to, as the same message's encoding would give it.
func valueAt(r protoreflect.Message, p Path, want leafKind) string {
	fd := r.Descriptor().Fields().ByNumber(p[0])
	switch {
	case fd == nil: // generated code that is older than the field keeps it in encoded form
		return valueOnWire(r.GetUnknown(), p, want)
	case fd.IsMap() || !r.Has(fd):
		return ""
	case !fd.IsList():
		return valueOf(fd, r.Get(fd), p[1:], want)
	case want == integer && len(p) == 1:
		return ""
	}
	list := r.Get(fd).List()
	for i := list.Len() - 1; i >= 0; i-- {
		if v := valueOf(fd, list.Get(i), p[1:], want); v != "" {
			return v
		}
	}
	return ""
}

func valueOf(fd protoreflect.FieldDescriptor, v protoreflect.Value, rest Path, want leafKind) string {
	if fd.Kind() == protoreflect.MessageKind {
		if len(rest) == 0 {
			return ""
		}
		return valueAt(v.Message(), rest, want)
	}
	if len(rest) > 0 {
		return ""
	}
	switch fd.Kind() {
	case protoreflect.StringKind:
		if want == text {
			return v.String()
		}
	case protoreflect.BytesKind:
		if want == text {
			return short(v.Bytes())
		}
	case protoreflect.Int64Kind, protoreflect.Int32Kind:
		if want == integer {
			return decimal(v.Int())
		}
	case protoreflect.Uint64Kind, protoreflect.Uint32Kind:
		if want == integer {
			return decimal(int64(v.Uint()))
		}
	}
	return ""
}

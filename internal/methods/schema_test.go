package methods

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// schema builds message types at run time, so that no test registers a name that a server's generated code also has.
// Each line is a message and its fields: "Request: string model_name=1, repeated Tensor inputs=5, optional int64 v=6".
func schema(t testing.TB, lines ...string) func(message string) *dynamicpb.Message {
	t.Helper()
	scalars := map[string]descriptorpb.FieldDescriptorProto_Type{
		"string": descriptorpb.FieldDescriptorProto_TYPE_STRING, "bytes": descriptorpb.FieldDescriptorProto_TYPE_BYTES,
		"int64": descriptorpb.FieldDescriptorProto_TYPE_INT64, "uint32": descriptorpb.FieldDescriptorProto_TYPE_UINT32,
		"fixed32": descriptorpb.FieldDescriptorProto_TYPE_FIXED32, "bool": descriptorpb.FieldDescriptorProto_TYPE_BOOL,
	}
	file := &descriptorpb.FileDescriptorProto{Name: proto.String("t.proto"), Syntax: proto.String("proto3"), Package: proto.String("t")}
	for _, line := range lines {
		name, fields, _ := strings.Cut(line, ":")
		msg := &descriptorpb.DescriptorProto{Name: &name}
		for _, field := range strings.Split(fields, ",") {
			words := strings.Fields(field)
			label := descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL
			explicit := words[0] == "optional"
			if words[0] == "repeated" {
				label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED
			}
			if len(words) == 3 {
				words = words[1:]
			}
			fieldName, number, _ := strings.Cut(words[1], "=")
			n, err := strconv.Atoi(number)
			require.NoError(t, err)
			f := &descriptorpb.FieldDescriptorProto{Name: &fieldName, Number: proto.Int32(int32(n)), Label: &label}
			if typ, ok := scalars[words[0]]; ok {
				f.Type = &typ
			} else {
				f.Type, f.TypeName = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum(), proto.String(".t."+words[0])
			}
			if explicit {
				f.Proto3Optional, f.OneofIndex = proto.Bool(true), proto.Int32(int32(len(msg.OneofDecl)))
				msg.OneofDecl = append(msg.OneofDecl, &descriptorpb.OneofDescriptorProto{Name: proto.String("_" + fieldName)})
			}
			msg.Field = append(msg.Field, f)
		}
		file.MessageType = append(file.MessageType, msg)
	}
	fd, err := protodesc.NewFile(file, nil)
	require.NoError(t, err)
	return func(message string) *dynamicpb.Message {
		return dynamicpb.NewMessage(fd.Messages().ByName(protoreflect.Name(message)))
	}
}

// set gives the field at a path of names a value, and adds an element to each repeated message on the way.
func set(m protoreflect.Message, path string, value any) {
	name, rest, nested := strings.Cut(path, ".")
	fd := m.Descriptor().Fields().ByName(protoreflect.Name(name))
	switch {
	case !nested:
		m.Set(fd, protoreflect.ValueOf(value))
	case fd.IsList():
		set(m.Mutable(fd).List().AppendMutable().Message(), rest, value)
	default:
		set(m.Mutable(fd).Message(), rest, value)
	}
}

func encode(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	require.NoError(t, err)
	return b
}

package methods

import (
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
)

// MaxModel is the longest model id that is read, in bytes. What is longer counts as naming no model, so that no caller can
// fill the tables of its process with names.
const MaxModel = 512

// ReadModel returns the id of the model that msg asks for: its name, or "name:version" if it asks for a version. It
// returns "" if the message names none, if the id is longer than MaxModel or not valid UTF-8, and if msg is corrupt or
// of a kind that it cannot read. It reads Go messages of any generation of generated code, dynamic messages, and
// encoded ones ([]byte or *[]byte). A version that is empty or 0 is none. msg may be nil and is not changed.
//
// Reading a name without a version from a Go message does not allocate; what is read from an encoded one is a copy.
func (m Method) ReadModel(msg any) string {
	if len(m.Model) == 0 {
		return ""
	}
	var name, version string
	switch msg := msg.(type) {
	case proto.Message:
		name, version = m.fromMessage(msg)
	case []byte:
		name, version = m.fromWire(msg)
	case *[]byte:
		if msg != nil {
			name, version = m.fromWire(*msg)
		}
	case protoadapt.MessageV1:
		name, version = m.fromLegacy(msg)
	}
	switch {
	case name == "" || !valid(name) || !valid(version):
		return ""
	case version == "":
		return name
	case len(name)+1+len(version) > MaxModel:
		return ""
	}
	return name + ":" + version
}

func valid(s string) bool { return len(s) <= MaxModel && utf8.ValidString(s) }

package methods

import (
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// leafKind is what a path may end in.
type leafKind uint8

const (
	text    leafKind = iota // string or bytes
	integer                 // int32, int64, uint32 or uint64
)

func (m *Method) fromWire(msg []byte) (name, version string) {
	if name = valueOnWire(msg, m.Model, text); name == "" {
		return "", ""
	}
	if len(m.VersionNumber) > 0 {
		if version = valueOnWire(msg, m.VersionNumber, integer); version != "" {
			return name, version
		}
	}
	if len(m.Version) > 0 {
		version = valueOnWire(msg, m.Version, text)
	}
	return name, version
}

// valueOnWire returns the last value that p leads to in an encoded message, which is the one that counts when a field
// occurs more than once, and "" if there is none or the message is corrupt.
func valueOnWire(msg []byte, p Path, want leafKind) string {
	var l leaf
	if !l.scan(msg, p, want) {
		return ""
	}
	if want == integer {
		return decimal(l.integer)
	}
	return short(l.text)
}

// leaf is the last value that a scan has met.
type leaf struct {
	text    []byte // aliases the message
	integer int64
}

// scan walks over all fields of msg and into those that lead along p; it steps over all others by their length, so its time
// grows with the number of fields and not with their size. It returns false if msg is corrupt.
func (l *leaf) scan(msg []byte, p Path, want leafKind) bool {
	for len(msg) > 0 {
		num, typ, n := protowire.ConsumeTag(msg)
		if n < 0 {
			return false
		}
		msg = msg[n:]
		last := len(p) == 1
		switch {
		case num == p[0] && typ == protowire.BytesType && (!last || want == text):
			var v []byte
			if v, n = protowire.ConsumeBytes(msg); n < 0 {
				return false
			}
			if last {
				l.text = v
			} else if !l.scan(v, p[1:], want) {
				return false
			}
		case num == p[0] && typ == protowire.VarintType && last && want == integer:
			var v uint64
			if v, n = protowire.ConsumeVarint(msg); n < 0 {
				return false
			}
			l.integer = int64(v)
		default:
			if n = protowire.ConsumeFieldValue(num, typ, msg); n < 0 {
				return false
			}
		}
		msg = msg[n:]
	}
	return true
}

// short copies as much of a text as shows whether it is too long for a model's name.
func short(b []byte) string { return string(b[:min(len(b), MaxModel+1)]) }

// decimal spells an integer, and 0, which is a field that is not set, as "".
func decimal(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

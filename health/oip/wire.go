package oip

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// fields walks over the fields of an encoded message. The zero value with rest set is before the first one.
type fields struct {
	rest []byte

	num    protowire.Number
	typ    protowire.Type
	number uint64 // of a varint
	bytes  []byte // of a string, bytes or message; it aliases the message

	err error
}

// next goes to the next field, and returns false when there is none or the message is malformed, which err then says.
func (f *fields) next() bool {
	if len(f.rest) == 0 {
		return false
	}
	num, typ, n := protowire.ConsumeTag(f.rest)
	if n < 0 {
		f.err = fmt.Errorf("tag after field %d: %w", f.num, protowire.ParseError(n))
		return false
	}
	f.num, f.typ, f.rest = num, typ, f.rest[n:]
	switch typ {
	case protowire.VarintType:
		f.number, n = protowire.ConsumeVarint(f.rest)
	case protowire.BytesType:
		f.bytes, n = protowire.ConsumeBytes(f.rest)
	default:
		n = protowire.ConsumeFieldValue(num, typ, f.rest)
	}
	if n < 0 {
		f.err = fmt.Errorf("field %d: %w", num, protowire.ParseError(n))
		return false
	}
	f.rest = f.rest[n:]
	return true
}

// is reports whether the field is the one of a number and type; one of another type is skipped as unknown.
func (f *fields) is(num protowire.Number, typ protowire.Type) bool {
	return f.num == num && f.typ == typ
}

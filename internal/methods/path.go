package methods

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// Path leads from a message to one of its fields: the field's number, after those of the messages that enclose it.
// In a repeated field, the last element that has the rest of the path counts. A path must end in a scalar field: in encoded
// form, a message cannot be told from a string.
type Path []protowire.Number

// maxDepth is how many numbers a path may have; the deepest that any known server needs is three.
const maxDepth = 16

// ParsePath returns the path that a string such as "1.13" spells: field 13 of the message in field 1. It has 1 to 16
// numbers, each a field number that protobuf allows.
func ParsePath(s string) (Path, error) {
	elems := strings.Split(s, ".")
	if len(elems) > maxDepth {
		return nil, fmt.Errorf("field path has %d numbers, want at most %d", len(elems), maxDepth)
	}
	path := make(Path, len(elems))
	for i, elem := range elems {
		n, err := strconv.ParseUint(elem, 10, 32)
		path[i] = protowire.Number(n)
		reserved := path[i] >= protowire.FirstReservedNumber && path[i] <= protowire.LastReservedNumber
		if err != nil || elem[0] == '0' || !path[i].IsValid() || reserved {
			return nil, fmt.Errorf("field path %.64q: element %d is %.32q, want a field number "+
				"(1 to %d, except %d to %d) as in \"1.13\"", s, i+1, elem,
				protowire.MaxValidNumber, protowire.FirstReservedNumber, protowire.LastReservedNumber)
		}
	}
	return path, nil
}

// String returns the path as ParsePath reads it, and "" for an empty one.
func (p Path) String() string {
	b := make([]byte, 0, 16)
	for i, n := range p {
		if i > 0 {
			b = append(b, '.')
		}
		b = strconv.AppendInt(b, int64(n), 10)
	}
	return string(b)
}

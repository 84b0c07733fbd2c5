package methods

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
)

func field(n protowire.Number, parts ...[]byte) []byte {
	var v []byte
	for _, p := range parts {
		v = append(v, p...)
	}
	return protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), v)
}

func join(parts ...[]byte) (all []byte) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

func TestWireLastValueWins(t *testing.T) {
	m := Method{Model: Path{1}}
	assert.Equal(t, "b", m.ReadModel(join(field(1, []byte("a")), field(7, []byte("tensor")), field(1, []byte("b")))))
	assert.Equal(t, "", m.ReadModel(join(field(1, []byte("a")), field(1))), "cleared by a later one")
	assert.Equal(t, "a", m.ReadModel(join(field(7, []byte("tensor")), field(1, []byte("a")))), "in any order")

	deep := Method{Model: Path{1, 1}}
	name := field(1, field(1, []byte("a")))
	assert.Equal(t, "a", deep.ReadModel(join(name, field(1, field(4, []byte("label"))))), "two parts of one message are merged")
}

func TestWireIgnoresOtherTypes(t *testing.T) {
	m := Method{Model: Path{1}}
	varint := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 5)
	group := protowire.AppendTag(protowire.AppendTag(nil, 1, protowire.StartGroupType), 1, protowire.EndGroupType)
	assert.Equal(t, "", m.ReadModel(varint))
	assert.Equal(t, "a", m.ReadModel(join(field(1, []byte("a")), varint, group)))
}

func TestWireCorrupt(t *testing.T) {
	m, deep := Method{Model: Path{1}}, Method{Model: Path{1, 1}}
	good := field(1, []byte("model"))
	for name, b := range map[string][]byte{
		"cut short":          good[:4],
		"cut after":          join(good, []byte{0x12}),
		"length over end":    join(good, []byte{0x12, 0x7f, 'x'}),
		"huge length":        join(good, []byte{0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}),
		"field number 0":     join(good, []byte{0x02, 0x00}),
		"stray end of group": join(good, []byte{0x0c}),
		"open group":         join(good, []byte{0x13}),
		"wire type 7":        join(good, []byte{0x17}),
	} {
		assert.Equal(t, "", m.ReadModel(b), name)
		assert.Equal(t, "", deep.ReadModel(field(1, b)), "%s, nested", name)
	}
	assert.Equal(t, "model", deep.ReadModel(field(1, good)))
}

// Where protobuf can decode a message, its encoded form must give what the decoded one gives.
func FuzzWire(f *testing.F) {
	message := schema(f, "T: string name=1, T sub=2, bytes raw=3, int64 number=4, fixed32 fixed=5, repeated string names=6, optional string opt=7")
	methods := []Method{
		{Model: Path{1}, Version: Path{7}, VersionNumber: Path{4}},
		{Model: Path{2, 1}, Version: Path{2, 3}, VersionNumber: Path{2, 4}},
		{Model: Path{2, 2, 7}, Version: Path{1}},
		{Model: Path{3}}, {Model: Path{6}}, {Model: Path{99, 1}},
	}
	seed := message("T")
	set(seed, "name", "model")
	set(seed, "sub.name", "nested")
	set(seed, "sub.sub.opt", "deep")
	set(seed, "number", int64(3))
	set(seed, "raw", []byte("raw"))
	f.Add(encode(f, seed))
	f.Add(join(field(1, []byte("a")), field(2, field(1, []byte("b"))), field(1, []byte("c")), field(2, field(4))))
	f.Add([]byte{0x13, 0x14})
	f.Fuzz(func(t *testing.T, b []byte) {
		msg, old := message("T"), &emptypb.Empty{}
		decodes := proto.Unmarshal(b, msg) == nil
		keeps := proto.Unmarshal(b, old) == nil
		for _, m := range methods {
			got := m.ReadModel(b)
			if decodes {
				assert.Equal(t, m.ReadModel(msg), got, "%v", m)
			}
			if keeps {
				assert.Equal(t, m.ReadModel(old), got, "%v, fields unknown", m)
			}
		}
	})
}

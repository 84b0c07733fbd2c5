package server

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	gpb "github.com/mlbalancer/mlbalancer/proto/mlbalancer/gpustats/v1"
)

// path leads from a report to a field of it, through the first elements of lists.
type path []protoreflect.FieldDescriptor

func (p path) String() string {
	s := ""
	for _, f := range p {
		s += "." + string(f.Name())
	}
	return s
}

// leaves returns the paths to all fields below a message of a type that say something by themselves.
func leaves(d protoreflect.MessageDescriptor, to path) []path {
	var all []path
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		here := append(append(path{}, to...), f)
		if f.Message() != nil && f.Message().ParentFile().Package() == d.ParentFile().Package() {
			all = append(all, leaves(f.Message(), here)...)
		} else {
			all = append(all, here)
		}
	}
	return all
}

// holder returns the message that holds the field to which a path leads, and makes what is missing on the way.
func holder(m protoreflect.Message, p path) protoreflect.Message {
	for _, f := range p[:len(p)-1] {
		if !f.IsList() {
			m = m.Mutable(f).Message()
			continue
		}
		l := m.Mutable(f).List()
		if l.Len() == 0 {
			l.AppendMutable()
		}
		m = l.Get(0).Message()
	}
	return m
}

// raise gives a field a value that is far from the one that it has.
func raise(m protoreflect.Message, f protoreflect.FieldDescriptor) {
	v := m.Get(f)
	switch {
	case f.IsList():
		m.Mutable(f).List().Append(protoreflect.ValueOfString("another"))
	case f.Message() != nil:
		seconds := f.Message().Fields().ByName("seconds")
		d := m.Mutable(f).Message()
		d.Set(seconds, protoreflect.ValueOfInt64(2*d.Get(seconds).Int()+10))
	case f.Kind() == protoreflect.Int64Kind:
		m.Set(f, protoreflect.ValueOfInt64(2*v.Int()+10))
	case f.Kind() == protoreflect.Uint64Kind:
		m.Set(f, protoreflect.ValueOfUint64(2*v.Uint()+10))
	case f.Kind() == protoreflect.DoubleKind:
		m.Set(f, protoreflect.ValueOfFloat64(2*v.Float()+10))
	case f.Kind() == protoreflect.BoolKind:
		m.Set(f, protoreflect.ValueOfBool(!v.Bool()))
	case f.Kind() == protoreflect.StringKind:
		m.Set(f, protoreflect.ValueOfString(v.String()+"x"))
	case f.Kind() == protoreflect.EnumKind:
		m.Set(f, protoreflect.ValueOfEnum(v.Enum()+1))
	}
}

// Whatever a report may say is noticed when it changes, comes or goes.
func TestDifferNoticesEveryField(t *testing.T) {
	t.Parallel()
	full := new(gpb.NodeReport)
	all := leaves(full.ProtoReflect().Descriptor(), nil)
	require.Contains(t, all, path{full.ProtoReflect().Descriptor().Fields().ByName("state")})
	for _, p := range all {
		raise(holder(full.ProtoReflect(), p), p[len(p)-1])
	}
	require.False(t, differ(full, proto.CloneOf(full), 0))
	require.False(t, differ(new(gpb.NodeReport), new(gpb.NodeReport), 0))
	for _, p := range all {
		if name := p.String(); name == ".sampled_at" || name == ".sequence" {
			other := proto.CloneOf(full)
			raise(other.ProtoReflect(), p[0])
			if name == ".sequence" {
				assert.False(t, differ(full, other, 0), "a sequence is no news")
			}
			continue
		}
		field := p[len(p)-1]
		other := proto.CloneOf(full)
		raise(holder(other.ProtoReflect(), p), field)
		assert.True(t, differ(full, other, .05), "%v changes", p)
		assert.True(t, differ(other, full, .05), "%v changes back", p)
		other = proto.CloneOf(full)
		holder(other.ProtoReflect(), p).Clear(field)
		assert.True(t, differ(full, other, 1), "%v goes", p)
		assert.True(t, differ(other, full, 1), "%v comes", p)
		for i := range p[:len(p)-1] {
			other = proto.CloneOf(full)
			holder(other.ProtoReflect(), p[:i+1]).Clear(p[i])
			assert.True(t, differ(full, other, 1), "%v goes", p[:i+1])
			assert.True(t, differ(other, full, 1), "%v comes", p[:i+1])
		}
	}
}

// What is relative to the time of a report differs if it is about another moment.
func TestDifferFollowsTime(t *testing.T) {
	t.Parallel()
	start := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(after, lane, eta, used time.Duration) *gpb.NodeReport {
		return &gpb.NodeReport{
			SampledAt: timestamppb.New(start.Add(after)), LaneFreeIn: durationpb.New(lane),
			Models: []*gpb.Model{{Name: proto.String("m"), LoadEta: durationpb.New(eta)}},
			Victim: &gpb.Victim{LastUsedAge: durationpb.New(used)},
		}
	}
	const s = time.Second
	a := at(0, 4*s, 2*s, 10*s)
	for name, tc := range map[string]struct {
		b         *gpb.NodeReport
		minChange float64
		want      bool
	}{
		"on time":            {at(s, 3*s, s, 11*s), 0, false},
		"over":               {at(10*s, 0, 0, 20*s), 0, false},
		"a clock read twice": {at(s, 3*s+s/2000, s, 11*s), 0, false},
		"a lane that lags":   {at(s, 3*s+s/10, s, 11*s), 0, true},
		"it lags by little":  {at(s, 3*s+s/10, s, 11*s), .1, false},
		"a load that lags":   {at(s, 3*s, 2*s, 11*s), .1, true},
		"a load that is due": {at(s, 3*s, 0, 11*s), .1, true},
		"a victim used":      {at(s, 3*s, s, 0), .1, true},
		"another victim":     {at(s, 3*s, s, 40*s), .1, true},
	} {
		assert.Equal(t, tc.want, differ(a, tc.b, tc.minChange), name)
	}
}

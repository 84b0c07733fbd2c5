package server

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	gpb "github.com/mlbalancer/mlbalancer/proto/mlbalancer/gpustats/v1"
)

// freshness is how long a report that says what holds now is sent as it is. It bounds the work for watchers with short intervals.
const freshness = MinInterval

// update is what one call of Update or UpdateFunc said.
type update struct {
	report *gpb.NodeReport
	sample func() *gpb.NodeReport // if set, it makes the report
	at     time.Time              // when report was given
}

// state is a report as it is sent. It is immutable, and shared by all watchers.
type state struct {
	of     *update
	madeAt time.Time
	moves  bool // whether the report is only true for the time at which it was made
	report *gpb.NodeReport

	encode sync.Once
	bytes  *gpb.NodeReport
	err    error
}

// current returns the state of the latest update as of now.
func (s *Server) current() *state {
	s.stateMu.Lock()
	defer s.stateMu.Unlock()
	u, now := s.latest.Load(), time.Now()
	if st := s.state; st != nil && st.of == u && (!st.moves || now.Sub(st.madeAt) < freshness) {
		return st
	}
	s.serial++
	s.state = newState(u, now, s.serial)
	return s.state
}

func newState(u *update, now time.Time, serial uint64) *state {
	from, at := u.report, u.at
	if u.sample != nil {
		from, at = u.sample(), now
	}
	r := shallowCopy(from)
	st := &state{of: u, madeAt: now, report: r, moves: u.sample != nil || r.SampledAt == nil}
	r.Sequence = proto.Uint64(serial)
	if r.SampledAt == nil {
		r.SampledAt = timestamppb.New(now)
		moveOn(r, now.Sub(at))
	}
	if !slices.IsSortedFunc(r.Models, byName) {
		r.Models = slices.SortedFunc(slices.Values(r.Models), byName)
	}
	return st
}

func byName(a, b *gpb.Model) int {
	return cmp.Or(cmp.Compare(a.GetName(), b.GetName()), cmp.Compare(a.GetVersion(), b.GetVersion()))
}

// moveOn adapts what a report says relative to its time to a time that is later by d. It replaces what it changes.
func moveOn(r *gpb.NodeReport, d time.Duration) {
	if d <= 0 {
		return
	}
	left := func(in *durationpb.Duration) *durationpb.Duration { return durationpb.New(max(0, in.AsDuration()-d)) }
	if r.LaneFreeIn != nil {
		r.LaneFreeIn = left(r.LaneFreeIn)
	}
	if age := r.GetVictim().GetLastUsedAge(); age != nil {
		r.Victim = &gpb.Victim{Kind: r.Victim.Kind, Model: r.Victim.Model, LastUsedAge: durationpb.New(age.AsDuration() + d)}
	}
	if !slices.ContainsFunc(r.Models, func(m *gpb.Model) bool { return m.GetLoadEta() != nil }) {
		return
	}
	r.Models = slices.Clone(r.Models)
	for i, m := range r.Models {
		if m.GetLoadEta() != nil {
			r.Models[i] = shallowCopy(m)
			r.Models[i].LoadEta = left(m.LoadEta)
		}
	}
}

// wire returns a message that encodes to the same bytes as the report. The bytes are made once: the message holds them as unknown
// fields, which are copied to the wire as they are.
func (st *state) wire() (*gpb.NodeReport, error) {
	st.encode.Do(func() {
		b, err := proto.Marshal(st.report)
		if err != nil {
			st.err = status.Errorf(codes.Internal, "gpustats: the report cannot be encoded: %v", err)
			return
		}
		st.bytes = new(gpb.NodeReport)
		st.bytes.ProtoReflect().SetUnknown(b)
	})
	return st.bytes, st.err
}

// shallowCopy returns a copy of m, which may be nil, that shares with it whatever its fields point to.
func shallowCopy[M any, P interface {
	*M
	proto.Message
}](m P) P {
	to := P(new(M))
	from, dst := m.ProtoReflect(), to.ProtoReflect()
	from.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		dst.Set(field, v)
		return true
	})
	dst.SetUnknown(from.GetUnknown())
	return to
}

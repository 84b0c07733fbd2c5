package mlbalancer

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/mlbalancer/mlbalancer/internal/methods"
	"github.com/mlbalancer/mlbalancer/internal/oip"
)

// enterOne has a call of a sequence begin and end.
func (s *sequences) enterOne(id uint64, read methods.Sequence, now int64) *sequence {
	q := s.enter(sequenceKey{hash: id}, read, now, func() string { return fmt.Sprint("sequence ", id) })
	if q != nil {
		s.leave(q, read.End, now)
	}
	return q
}

// inRing counts the ring, in both directions.
func (s *sequences) inRing(t *testing.T) (n int) {
	back := 0
	for q := s.used.next; q != &s.used; q = q.next {
		n++
	}
	for q := s.used.prev; q != &s.used; q = q.prev {
		back++
	}
	require.Equal(t, n, back)
	return n
}

func TestSequencesAreBounded(t *testing.T) {
	t.Parallel()
	const most = 64
	s := newSequences(most)
	kept := s.enterOne(1, methods.Sequence{}, 1)
	for i := range 100 * most {
		now := int64(i + 2)
		s.enterOne(uint64(i+2), methods.Sequence{Start: i%2 == 0}, now)
		require.Same(t, kept, s.enterOne(1, methods.Sequence{}, now), "it is in use")
		require.LessOrEqual(t, len(s.byKey), most)
	}
	assert.Len(t, s.byKey, most)
	assert.Equal(t, most, s.inRing(t))

	for i := range 100 * most {
		s.enterOne(uint64(i+2), methods.Sequence{End: true}, 1e6)
	}
	assert.Len(t, s.byKey, 1)
	assert.Equal(t, 1, s.inRing(t))
}

func TestSequencesTakeTheMemoryThatIsSaid(t *testing.T) {
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	const most = 1 << 13
	before := heap()
	s := newSequences(most)
	name := func() string {
		long := strings.Repeat("\x01", 500)
		return nameSequence(long, methods.SequenceID{Text: long})
	}
	for i := range 2 * most {
		s.leave(s.enter(sequenceKey{hash: uint64(i)}, methods.Sequence{}, 1, name), false, 1)
	}
	assert.Less(t, (heap()-before)*maxSequences/most, int64(40<<20))
	assert.Len(t, s.byKey, most)
}

func TestIdleSequencesAreForgotten(t *testing.T) {
	t.Parallel()
	s := newSequences(1000)
	busy := s.enter(sequenceKey{hash: 1}, methods.Sequence{}, 1, func() string { return "" })
	first := s.enterOne(2, methods.Sequence{}, 1)
	assert.Same(t, first, s.enterOne(2, methods.Sequence{}, sequenceIdle))
	later := 3 * sequenceIdle
	assert.NotSame(t, first, s.enterOne(2, methods.Sequence{}, later))
	again := s.enter(sequenceKey{hash: 1}, methods.Sequence{}, later, nil)
	assert.Same(t, busy, again, "a call of it is under way")
	s.leave(again, false, later)
	s.leave(busy, false, later)

	for i := range 100 {
		s.enterOne(uint64(100+i), methods.Sequence{}, later)
	}
	for i := range 60 { // as they get no more, two go with each call
		s.enterOne(1, methods.Sequence{}, later+sequenceIdle+int64(i))
	}
	assert.Len(t, s.byKey, 1)
	assert.Equal(t, 1, s.inRing(t))
}

// What is forgotten while a call is under way is not the one that has come in its place.
func TestAForgottenSequenceIsLeft(t *testing.T) {
	t.Parallel()
	s := newSequences(10)
	old := s.enter(sequenceKey{hash: 1}, methods.Sequence{}, 1, func() string { return "old" })
	fresh := s.enter(sequenceKey{hash: 1}, methods.Sequence{Start: true}, 2, func() string { return "fresh" })
	require.NotSame(t, old, fresh)
	s.leave(old, true, 3)
	assert.Same(t, fresh, s.byKey[sequenceKey{hash: 1}])
	assert.Nil(t, s.enter(sequenceKey{hash: 1}, methods.Sequence{Start: true, End: true}, 4, nil), "it has no other call")
	assert.Empty(t, s.byKey)
	s.leave(fresh, false, 5)
	assert.Zero(t, s.inRing(t))
}

func TestSequenceNames(t *testing.T) {
	t.Parallel()
	assert.Equal(t, `sequence 7 of model "m"`, nameSequence("m", methods.SequenceID{Number: 7}))
	assert.Equal(t, `sequence "7" of model "m:2"`, nameSequence("m:2", methods.SequenceID{Text: "7"}))
	long := fmt.Sprintf("%0500d", 7)
	assert.Less(t, len(nameSequence(long, methods.SequenceID{Text: long})), 200)
}

// A call that belongs to no sequence costs its record.
func TestCallsWithoutASequenceCostNothing(t *testing.T) {
	intercept := UnaryClientInterceptor()
	invoke := func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return nil }
	const method = "/inference.GRPCInferenceService/ModelInfer"
	msg := &oip.ModelInferRequest{ModelName: "m", RawInputContents: [][]byte{make([]byte, 16)}}
	ctx := context.Background()
	assert.LessOrEqual(t, testing.AllocsPerRun(100, func() { _ = intercept(ctx, method, msg, nil, nil, invoke) }), 1.)
}

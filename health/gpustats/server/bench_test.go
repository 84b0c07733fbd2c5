package server

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	gpb "github.com/mlbalancer/mlbalancer/proto/mlbalancer/gpustats/v1"
)

func report(models int) *gpb.NodeReport {
	r := &gpb.NodeReport{InFlight: proto.Int64(3), Waiting: proto.Int64(1), Utilization: proto.Float64(.5)}
	for i := range models {
		r.Models = append(r.Models, &gpb.Model{
			Name: proto.String(fmt.Sprintf("model-%04d", i)), State: gpb.ModelState_MODEL_STATE_READY.Enum(),
			ServiceTime: durationpb.New(time.Duration(i) * time.Millisecond),
		})
	}
	return r
}

// An update costs the same whatever it says.
func TestUpdateCost(t *testing.T) {
	s := New(Options{})
	for _, n := range []int{0, 50, 4000} {
		r := report(n)
		assert.LessOrEqual(t, testing.AllocsPerRun(100, func() { s.Update(r) }), 1.)
	}
}

// What goes over the wire is the report, encoded once.
func TestWire(t *testing.T) {
	t.Parallel()
	s := New(Options{})
	s.Update(report(50))
	st := s.current()
	first, err := st.wire()
	require.NoError(t, err)
	again, err := st.wire()
	require.NoError(t, err)
	assert.Same(t, first, again)
	assert.Same(t, st, s.current())
	b, err := proto.Marshal(first)
	require.NoError(t, err)
	got := new(gpb.NodeReport)
	require.NoError(t, proto.Unmarshal(b, got))
	assert.True(t, proto.Equal(st.report, got))
}

func BenchmarkUpdate(b *testing.B) {
	s, r := New(Options{}), report(50)
	b.ReportAllocs()
	for b.Loop() {
		s.Update(r)
	}
}

// BenchmarkReport is what a report of 50 models costs the server: once to make, once to compare per watcher, and once to send
// per watcher.
func BenchmarkReport(b *testing.B) {
	s := New(Options{})
	b.Run("make", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s.Update(report50)
			if _, err := s.current().wire(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("compare", func(b *testing.B) {
		b.ReportAllocs()
		other := proto.CloneOf(report50)
		for b.Loop() {
			if differ(report50, other, .05) {
				b.Fatal("they differ")
			}
		}
	})
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		wire, err := s.current().wire()
		if err != nil {
			b.Fatal(err)
		}
		var to []byte
		for b.Loop() {
			if to, err = (proto.MarshalOptions{}).MarshalAppend(to[:0], wire); err != nil {
				b.Fatal(err)
			}
		}
	})
}

var report50 = report(50)

package oip

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/mlbalancer/mlbalancer/health"
	"github.com/mlbalancer/mlbalancer/internal/oip"
)

func TestListsAreCut(t *testing.T) {
	t.Parallel()
	var many, other oip.ModelStatisticsResponse
	for i := range maxModels + 1 {
		many.ModelStats = append(many.ModelStats, stats(fmt.Sprintf("m%d", i), "1", 1))
		other.ModelStats = append(other.ModelStats, stats(fmt.Sprintf("n%d", i), "1", 1))
	}
	var s statistics
	var r health.Report
	for _, list := range []*oip.ModelStatisticsResponse{&many, &other} {
		require.NoError(t, s.read(encode(t, list)))
		r = health.Report{}
		s.fill(&r)
		assert.Len(t, r.Models, 2*maxModels)
		assert.False(t, r.Complete, "some were left out")
		assert.Len(t, s.models, 2*maxModels, "what is gone is forgotten")
	}
	require.NoError(t, s.read(encode(t, statsList(stats("m", "", 1)))))
	r = health.Report{}
	s.fill(&r)
	assert.Len(t, r.Models, 1)
	assert.True(t, r.Complete)
	assert.Len(t, s.models, 1)
}

func TestNamesThatNoCallCanHaveAreLeftOut(t *testing.T) {
	t.Parallel()
	x := &index{}
	long := strings.Repeat("x", maxName-1)
	msg := encode(t, &oip.RepositoryIndexResponse{Models: []*oip.RepositoryIndexResponse_ModelIndex{
		{State: "READY"}, {Name: long, State: "READY"}, {Name: long, Version: "1", State: "READY"},
		{Name: "m:1", State: "LOADING"}, {Name: "m", Version: "1", State: "READY"},
	}})
	require.NoError(t, x.read(append(msg, 10, 3, 10, 1, 0xff)))
	var r health.Report
	x.fill(&r)
	assert.Equal(t, map[string]health.ModelState{
		long: health.ModelReady, "m": health.ModelReady, "m:1": health.ModelReady,
	}, states(t, r))
	assert.True(t, r.Complete)
}

// list is a decoder of a list of models.
type list interface {
	response
	fill(r *health.Report)
}

// requireSound checks what holds of any list, well-formed or not.
func requireSound(t *testing.T, l list, models map[string]*model) {
	t.Helper()
	var r health.Report
	l.fill(&r)
	require.LessOrEqual(t, len(r.Models), 2*maxModels)
	require.Len(t, models, len(states(t, r)))
	for _, m := range r.Models {
		require.NotEmpty(t, m.Name)
		require.LessOrEqual(t, len(m.Name), maxName)
		require.True(t, utf8.ValidString(m.Name))
		require.LessOrEqual(t, m.Service, maxMean)
		require.GreaterOrEqual(t, m.Service, 0*m.Service)
	}
	require.LessOrEqual(t, r.Load.QueueDelay, maxMean)
}

// key is how a call names a version of a model, and "" if none can.
func key(name, version string) string {
	if name == "" || len(name)+1+len(version) > maxName {
		return ""
	}
	if version == "" {
		return name
	}
	return name + ":" + version
}

func FuzzStatistics(f *testing.F) {
	f.Add(encode(f, statsList()), encode(f, statsList()))
	f.Add(encode(f, statsList(stats("m", "1", 3))), encode(f, statsList(stats("m", "1", 5), stats("m", "2", 1))))
	f.Add(encode(f, statsList(stats("m", "", 3))), encode(f, statsList(stats("m", "", 1), stats("m", "", 7))))
	f.Add(encode(f, statsList(stats(strings.Repeat("m", 600), "1", 3))), []byte{10, 4, 50, 2, 10, 9})
	f.Fuzz(func(t *testing.T, first, second []byte) {
		var s statistics
		for _, msg := range [][]byte{first, second} {
			err := s.read(msg)
			requireSound(t, &s, s.models)
			var want oip.ModelStatisticsResponse
			if proto.Unmarshal(msg, &want) != nil {
				continue
			}
			require.NoError(t, err)
			if len(want.GetModelStats()) > maxModels {
				continue
			}
			names := make(map[string]bool)
			for _, m := range want.GetModelStats() {
				if k := key(m.GetName(), m.GetVersion()); k != "" {
					names[k], names[m.GetName()] = true, true
				}
			}
			require.Len(t, s.models, len(names))
			for name := range names {
				require.Contains(t, s.models, name)
				require.Equal(t, health.ModelReady, s.models[name].state)
			}
		}
	})
}

func FuzzIndex(f *testing.F) {
	for _, state := range []string{"", "READY", "LOADING", "UNLOADING", "UNAVAILABLE", "State.READY", "?"} {
		f.Add(encode(f, &oip.RepositoryIndexResponse{Models: []*oip.RepositoryIndexResponse_ModelIndex{
			{Name: "m", Version: "1", State: state, Reason: "because"}, {Name: "m", State: "UNAVAILABLE"},
			{Name: "n", State: state},
		}}))
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		var x index
		err := x.read(msg)
		requireSound(t, &x, x.models)
		var want oip.RepositoryIndexResponse
		if proto.Unmarshal(msg, &want) != nil {
			return
		}
		require.NoError(t, err)
		for _, m := range want.GetModels()[:min(maxModels, len(want.GetModels()))] {
			if k := key(m.GetName(), m.GetVersion()); k != "" && m.GetState() == "READY" {
				require.Equal(t, health.ModelReady, x.models[k].state)
				require.Equal(t, health.ModelReady, x.models[m.GetName()].state)
			}
		}
	})
}

func FuzzReady(f *testing.F) {
	f.Add(encode(f, &oip.ServerReadyResponse{}))
	f.Add(encode(f, &oip.ModelReadyResponse{Ready: true}))
	f.Add([]byte{8, 1, 8, 0})
	f.Fuzz(func(t *testing.T, msg []byte) {
		var r readiness
		err := r.read(msg)
		var want oip.ServerReadyResponse
		if proto.Unmarshal(msg, &want) == nil {
			require.NoError(t, err)
			require.Equal(t, want.GetReady(), r.ready)
		}
	})
}

// fifty is what a server with 50 models says of them.
func fifty(t testing.TB, served uint64) []byte {
	list := &oip.ModelStatisticsResponse{}
	for i := range uint64(50) {
		list.ModelStats = append(list.ModelStats, stats(fmt.Sprintf("model-%d", i), "1", i+served))
	}
	return encode(t, list)
}

func TestReadingAListAgainDoesNotAllocate(t *testing.T) {
	msgs := [][]byte{fifty(t, 1), fifty(t, 9)}
	var s statistics
	var r health.Report
	n := 0
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		if err := s.read(msgs[n%2]); err != nil {
			t.Fatal(err)
		}
		r = health.Report{Models: r.Models[:0]}
		s.fill(&r)
		n++
	}))
	assert.Len(t, r.Models, 100)
}

func BenchmarkDecodeStatistics(b *testing.B) {
	msgs := [][]byte{fifty(b, 1), fifty(b, 9)}
	var s statistics
	var r health.Report
	b.ReportAllocs()
	b.SetBytes(int64(len(msgs[0])))
	for n := 0; b.Loop(); n++ {
		if err := s.read(msgs[n%2]); err != nil {
			b.Fatal(err)
		}
		r = health.Report{Models: r.Models[:0]}
		s.fill(&r)
	}
}

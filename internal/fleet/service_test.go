package fleet

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/mlbalancer/mlbalancer/internal/oip"
)

// states returns what a server's index says: name, version, state and reason of each model.
func states(t *testing.T, c *oip.Client, ready bool) (rows [][4]string) {
	t.Helper()
	index, err := c.Index(t.Context(), ready)
	require.NoError(t, err)
	for _, m := range index {
		rows = append(rows, [4]string{m.GetName(), m.GetVersion(), m.GetState(), m.GetReason()})
	}
	return rows
}

func TestExplicitServerAnswersAsTritonDoes(t *testing.T) {
	cfg := exact(Config{Servers: 1, Slots: 2, Explicit: true, Models: []string{"m", "n", "o"}})
	inBubble(t, cfg, func(t *testing.T, f *Fleet) {
		c := client(t, f, 0)
		modelReady := func(model string) bool {
			ready, err := c.ModelReady(t.Context(), model)
			require.NoError(t, err)
			return ready
		}
		serverReady := func() bool {
			ready, err := c.ServerReady(t.Context())
			require.NoError(t, err)
			return ready
		}

		_, err := c.Infer(t.Context(), NewRequest("m", 0))
		requireStatus(t, err, codes.NotFound, "Request for unknown model: 'm' is not found")
		_, err = c.Infer(t.Context(), NewRequest("", 0))
		requireStatus(t, err, codes.NotFound, "Request for unknown model: '' is not found")
		assert.False(t, modelReady("m"))
		assert.False(t, modelReady("nope"))
		assert.Equal(t, [][4]string{{"m"}, {"n"}, {"o"}}, states(t, c, false))
		assert.Empty(t, states(t, c, true))
		requireStatus(t, c.Load(t.Context(), "nope"), codes.Internal,
			"failed to load 'nope', failed to poll from model repository")
		require.NoError(t, c.Unload(t.Context(), "nope"))

		loaded := make(chan error, 1)
		go func() { loaded <- c.Load(t.Context(), "m") }()
		synctest.Wait()
		_, err = c.Infer(t.Context(), NewRequest("m", 0))
		requireStatus(t, err, codes.NotFound, "Request for unknown model: 'm' has no available versions")
		assert.False(t, serverReady(), "while a model loads")
		assert.Equal(t, [4]string{"m", "1", "LOADING", ""}, states(t, c, false)[0])
		require.NoError(t, <-loaded)
		assert.True(t, modelReady("m"))
		assert.True(t, serverReady())
		assert.Equal(t, [][4]string{{"m", "1", "READY", ""}}, states(t, c, true))
		_, err = c.Infer(t.Context(), NewRequest("m", 0))
		require.NoError(t, err)
		begin := time.Now()
		require.NoError(t, c.Load(t.Context(), "m"), "again")
		assert.Zero(t, time.Since(begin))

		req := NewRequest("m", 0)
		req.ModelVersion = "1"
		_, err = c.Infer(t.Context(), req)
		require.NoError(t, err)
		req.ModelVersion = "7"
		_, err = c.Infer(t.Context(), req)
		requireStatus(t, err, codes.NotFound, "Request for unknown model: 'm' version 7 is not found")

		require.NoError(t, c.Load(t.Context(), "n"))
		requireStatus(t, c.Load(t.Context(), "o"), codes.InvalidArgument,
			"load failed for model 'o': version 1 is at UNAVAILABLE state: Internal: out of memory;")
		assert.False(t, serverReady(), "since a load failed")
		require.NoError(t, c.Unload(t.Context(), "o"))
		assert.True(t, serverReady())

		busy := make(chan error, 1)
		go func() {
			_, err := c.Infer(t.Context(), NewRequest("m", time.Second))
			busy <- err
		}()
		synctest.Wait()
		require.NoError(t, c.Unload(t.Context(), "m"))
		assert.False(t, serverReady(), "while a model unloads")
		assert.Equal(t, [4]string{"m", "1", "UNLOADING", ""}, states(t, c, false)[0])
		require.NoError(t, <-busy)
		assert.Equal(t, [4]string{"m", "1", "UNAVAILABLE", "unloaded"}, states(t, c, false)[0])
		_, err = c.Infer(t.Context(), NewRequest("m", 0))
		requireStatus(t, err, codes.NotFound, "Request for unknown model: 'm' has no available versions")
		req.ModelVersion = "1"
		_, err = c.Infer(t.Context(), req)
		requireStatus(t, err, codes.Unavailable, "Request for unknown model: 'm' version 1 is not at ready state")

		st := f.Servers[0].Stats()
		assert.EqualValues(t, 2, st.Loads)
		assert.Zero(t, st.ColdLoads+st.ColdCalls)
		assert.EqualValues(t, 5, st.Errors[codes.NotFound])
	})
}

func TestOnDemandServerKnowsItsRepository(t *testing.T) {
	inBubble(t, exact(Config{Servers: 1, Models: []string{"m"}}), func(t *testing.T, f *Fleet) {
		c := client(t, f, 0)
		_, err := c.Infer(t.Context(), NewRequest("m", 0))
		require.NoError(t, err)
		_, err = c.Infer(t.Context(), NewRequest("nope", 0))
		requireStatus(t, err, codes.NotFound, "Request for unknown model: 'nope' is not found")
		assert.Zero(t, f.Servers[0].Preload("nope"))
	})
}

func TestWorkParameterIsChecked(t *testing.T) {
	inBubble(t, exact(Config{Servers: 1}), func(t *testing.T, f *Fleet) {
		c := client(t, f, 0)
		for _, p := range []*oip.InferParameter{
			{ParameterChoice: &oip.InferParameter_StringParam{StringParam: "5"}},
			{ParameterChoice: &oip.InferParameter_Int64Param{Int64Param: -5}},
			{ParameterChoice: &oip.InferParameter_Int64Param{Int64Param: 1 << 60}},
			{},
		} {
			req := NewRequest("m", 0)
			req.Parameters[WorkParameter] = p
			_, err := c.Infer(t.Context(), req)
			require.ErrorContains(t, err, "parameter 'work_us' is ")
			require.ErrorContains(t, err, "want an int64 from 0 to 86400000000 microseconds")
		}
		assert.EqualValues(t, 4, f.Servers[0].Stats().Errors[codes.InvalidArgument])
	})
}

func TestModelStatisticsTellWhatClientsMeasure(t *testing.T) {
	inBubble(t, exact(Config{Servers: 1, Workers: 1, Scale: 0.5}), func(t *testing.T, f *Fleet) {
		s, c := f.Servers[0], client(t, f, 0)
		s.Preload("a", "b")
		results := make(chan error, 2)
		for range 2 { // the second waits 1 s for the first
			go func() {
				_, err := c.Infer(t.Context(), NewRequest("a", 2*time.Second))
				results <- err
			}()
		}
		require.NoError(t, <-results)
		require.NoError(t, <-results)
		last := time.Now()

		stats, err := c.Statistics(t.Context(), "")
		require.NoError(t, err)
		require.Len(t, stats, 2)
		a := stats[0]
		assert.Equal(t, "a", a.GetName())
		assert.EqualValues(t, 2, a.GetInferenceCount())
		assert.EqualValues(t, last.UnixMilli(), a.GetLastInference())
		for _, tc := range []struct {
			name  string
			got   *oip.StatisticDuration
			count uint64
			want  time.Duration
		}{
			{"queue", a.GetInferenceStats().GetQueue(), 2, time.Second},
			{"compute", a.GetInferenceStats().GetComputeInfer(), 2, 2 * time.Second},
			{"success", a.GetInferenceStats().GetSuccess(), 2, 3 * time.Second},
			{"fail", a.GetInferenceStats().GetFail(), 0, 0},
		} {
			assert.Equal(t, tc.count, tc.got.GetCount(), tc.name)
			assert.EqualValues(t, tc.want, tc.got.GetNs(), tc.name)
		}
		assert.Zero(t, stats[1].GetInferenceCount())
		assert.Zero(t, stats[1].GetLastInference())

		one, err := c.Statistics(t.Context(), "b")
		require.NoError(t, err)
		require.Len(t, one, 1)
		s.Evict("b")
		_, err = c.Statistics(t.Context(), "b")
		requireStatus(t, err, codes.InvalidArgument, "requested model 'b' is not available")
		stats, err = c.Statistics(t.Context(), "")
		require.NoError(t, err)
		assert.Len(t, stats, 1, "ready models only")
	})
}

func TestMetadata(t *testing.T) {
	inBubble(t, exact(Config{Servers: 2, Explicit: true, Models: []string{"m"}}), func(t *testing.T, f *Fleet) {
		service := oip.NewGRPCInferenceServiceClient(channel(t, f, 1))
		f.Servers[1].Drain()
		server, err := service.ServerMetadata(t.Context(), &oip.ServerMetadataRequest{})
		require.NoError(t, err, "answered to the end")
		assert.Equal(t, "server-1", server.GetName())
		_, err = service.ServerLive(t.Context(), &oip.ServerLiveRequest{})
		requireStatus(t, err, codes.Unavailable, "Server exiting")
		require.NoError(t, f.Reset())
		live, err := service.ServerLive(t.Context(), &oip.ServerLiveRequest{})
		require.NoError(t, err)
		assert.True(t, live.GetLive())

		_, err = service.ModelMetadata(t.Context(), &oip.ModelMetadataRequest{Name: "nope"})
		requireStatus(t, err, codes.NotFound, "Request for unknown model: 'nope' is not found")
		_, err = service.ModelMetadata(t.Context(), &oip.ModelMetadataRequest{Name: "m"})
		requireStatus(t, err, codes.NotFound, "Request for unknown model: 'm' is not found")
		f.Servers[1].Preload("m")
		model, err := service.ModelMetadata(t.Context(), &oip.ModelMetadataRequest{Name: "m"})
		require.NoError(t, err)
		assert.Equal(t, []string{"1"}, model.GetVersions())
		assert.Equal(t, "FP32", model.GetInputs()[0].GetDatatype())
	})
}

package fleet

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer/internal/oip"
	gpustatsv1 "github.com/mlbalancer/mlbalancer/proto/mlbalancer/gpustats/v1"
)

func TestParseSignals(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]Signals{
		"none":                       NoSignals,
		"health":                     Health,
		"oip, gpustats":              OIP | GPUStats,
		"health,oip,orca,gpustats":   Health | OIP | ORCA | GPUStats,
		"gpustats,orca,orca, health": Health | ORCA | GPUStats,
	} {
		got, err := ParseSignals(in)
		require.NoError(t, err, in)
		assert.Equal(t, want, got, in)
		again, err := ParseSignals(got.String())
		require.NoError(t, err)
		assert.Equal(t, want, again, "the way it is written reads the same")
	}
	for in, name := range map[string]string{"": "", "gpu": "gpu", "oip,": "", "oip,none": "none", "Health": "Health"} {
		_, err := ParseSignals(in)
		assert.EqualError(t, err, `signal is "`+name+`", want some of health, oip, orca, gpustats, or none alone`, in)
	}
}

func TestSignalsAreChecked(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]Config{
		"fleet: Signals is 0x20, want a set of Health, OIP, ORCA and GPUStats, or NoSignals alone": {Signals: NoSignals << 1},
		"fleet: Signals is 0x11, want a set of Health, OIP, ORCA and GPUStats, or NoSignals alone": {Signals: NoSignals | Health},
		"fleet: ModelHealth is true, want false with NoWatch":                                      {NoWatch: true, ModelHealth: true},
	} {
		_, err := Start(cfg)
		assert.EqualError(t, err, want)
	}
}

// spoken asks a server for all of its signals, and returns those that answer.
func spoken(t *testing.T, f *Fleet) Signals {
	t.Helper()
	cc := channel(t, f, 0)
	ctx := testContext(t)
	var set Signals
	note := func(signal Signals, err error) {
		t.Helper()
		if status.Code(err) == codes.Unimplemented {
			assert.Zero(t, set&signal, "another method of %v answered", signal)
			return
		}
		require.NoError(t, err)
		set |= signal
	}
	h := healthpb.NewHealthClient(cc)
	_, err := h.Check(ctx, &healthpb.HealthCheckRequest{})
	note(Health, err)
	watch, err := h.Watch(ctx, &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	_, err = watch.Recv()
	note(Health, err)

	_, err = oip.NewClient(cc).ServerReady(ctx)
	note(OIP, err)
	_, err = oip.NewGRPCInferenceServiceClient(cc).ServerLive(ctx, &oip.ServerLiveRequest{})
	note(OIP, err)
	_, err = oip.NewClient(cc).ModelReady(ctx, "m")
	note(OIP, err)
	_, err = oip.NewClient(cc).Statistics(ctx, "")
	note(OIP, err)
	_, err = oip.NewClient(cc).Index(ctx, false)
	note(OIP, err)

	if reports(t, f) != nil {
		set |= ORCA
	}
	get, err := gpustatsv1.NewGPUStatsClient(cc).Get(ctx, &gpustatsv1.GetRequest{})
	note(GPUStats, err)
	stream, err := gpustatsv1.NewGPUStatsClient(cc).Watch(ctx, &gpustatsv1.WatchRequest{})
	require.NoError(t, err)
	first, err := stream.Recv()
	note(GPUStats, err)
	if get != nil {
		assert.Equal(t, get.GetConcurrency(), first.GetConcurrency())
	}
	return set
}

func TestSignalsThatAreOffAreUnimplemented(t *testing.T) {
	t.Parallel()
	for set, want := range map[Signals]Signals{
		0:         Health,
		NoSignals: 0,
		Health:    Health, OIP: OIP, ORCA: ORCA, GPUStats: GPUStats,
		Health | OIP | ORCA | GPUStats: Health | OIP | ORCA | GPUStats,
	} {
		assert.Equal(t, want, spoken(t, start(t, Config{Servers: 1, InMemory: true, Scale: 1e-3, Signals: set})), "of %v", set)
	}
	triton, err := Config{Explicit: true}.withDefaults()
	require.NoError(t, err)
	assert.Equal(t, Health|OIP, triton.Signals)
}

// TestCallsGoOnWithoutSignals: what is not a signal is there in any case.
func TestCallsGoOnWithoutSignals(t *testing.T) {
	inBubble(t, exact(Config{Servers: 1, Signals: NoSignals, Explicit: true}), func(t *testing.T, f *Fleet) {
		c := client(t, f, 0)
		require.NoError(t, c.Load(t.Context(), "m"))
		_, err := c.Infer(t.Context(), NewRequest("m", 0))
		require.NoError(t, err)
		metadata, err := oip.NewGRPCInferenceServiceClient(channel(t, f, 0)).ServerMetadata(t.Context(), &oip.ServerMetadataRequest{})
		require.NoError(t, err)
		assert.Equal(t, "server-0", metadata.GetName())
		require.NoError(t, c.Unload(t.Context(), "m"))
	})
}

func TestMutedSignals(t *testing.T) {
	inBubble(t, Config{Servers: 1, Scale: 1e-3, Signals: Health | OIP | ORCA | GPUStats}, func(t *testing.T, f *Fleet) {
		s, all := f.Servers[0], Health|OIP|ORCA|GPUStats
		for _, signal := range []Signals{Health, OIP, ORCA, GPUStats, Health | GPUStats} {
			s.Mute(signal, true)
			assert.Equal(t, all&^signal, spoken(t, f), "muted: %v", signal)
			s.Mute(signal, false)
			assert.Equal(t, all, spoken(t, f))
		}
		s.Mute(all, true)
		require.NoError(t, s.Restart())
		assert.Equal(t, all, spoken(t, f), "a restart ends it")
		s.Mute(all, true)
		require.NoError(t, f.Reset())
		assert.Equal(t, all, spoken(t, f), "a reset ends it")
	})
}

func TestMuteEndsStreams(t *testing.T) {
	inBubble(t, Config{Servers: 1, Signals: Health | GPUStats}, func(t *testing.T, f *Fleet) {
		cc := channel(t, f, 0)
		health, err := healthpb.NewHealthClient(cc).Watch(t.Context(), &healthpb.HealthCheckRequest{})
		require.NoError(t, err)
		_, err = health.Recv()
		require.NoError(t, err)
		stats, err := gpustatsv1.NewGPUStatsClient(cc).Watch(t.Context(), &gpustatsv1.WatchRequest{})
		require.NoError(t, err)
		_, err = stats.Recv()
		require.NoError(t, err)

		f.Servers[0].Mute(Health|GPUStats, true)
		begin := time.Now()
		_, err = health.Recv()
		assert.Equal(t, codes.Unimplemented, status.Code(err))
		_, err = stats.Recv()
		assert.Equal(t, codes.Unimplemented, status.Code(err))
		assert.Zero(t, time.Since(begin), "at once")
	})
}

func TestStalledPollsHang(t *testing.T) {
	inBubble(t, Config{Servers: 1, Signals: Health | OIP | ORCA | GPUStats}, func(t *testing.T, f *Fleet) {
		s, cc := f.Servers[0], channel(t, f, 0)
		s.Preload("m")
		polls := map[string]func(ctx context.Context) error{
			"Check": func(ctx context.Context) error {
				_, err := healthpb.NewHealthClient(cc).Check(ctx, &healthpb.HealthCheckRequest{})
				return err
			},
			"ServerReady":     func(ctx context.Context) error { _, err := oip.NewClient(cc).ServerReady(ctx); return err },
			"ModelReady":      func(ctx context.Context) error { _, err := oip.NewClient(cc).ModelReady(ctx, "m"); return err },
			"ModelStatistics": func(ctx context.Context) error { _, err := oip.NewClient(cc).Statistics(ctx, ""); return err },
			"RepositoryIndex": func(ctx context.Context) error { _, err := oip.NewClient(cc).Index(ctx, false); return err },
			"Get": func(ctx context.Context) error {
				_, err := gpustatsv1.NewGPUStatsClient(cc).Get(ctx, &gpustatsv1.GetRequest{})
				return err
			},
		}
		for name, poll := range polls {
			s.Stall(Health|OIP|GPUStats, true)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			assert.Equal(t, codes.DeadlineExceeded, status.Code(poll(ctx)), name)
			cancel()
			answered := make(chan error, 1)
			go func() { answered <- poll(t.Context()) }()
			synctest.Wait()
			assert.Empty(t, answered, name)
			s.Stall(Health|OIP|GPUStats, false)
			require.NoError(t, <-answered, "%s, when it is over", name)
		}
		s.Stall(ORCA, true)
		assert.Nil(t, reports(t, f))
		s.Stall(ORCA, false)
		assert.NotNil(t, reports(t, f))

		s.Stall(OIP, true)
		failed := make(chan error, 1)
		go func() { failed <- polls["ServerReady"](t.Context()) }()
		synctest.Wait()
		s.GracefulStop()
		requireStatus(t, <-failed, codes.Unavailable, "Server exiting")
	})
}

func TestStalledStreamsStayOpen(t *testing.T) {
	inBubble(t, Config{Servers: 1, Signals: Health | GPUStats}, func(t *testing.T, f *Fleet) {
		s, cc := f.Servers[0], channel(t, f, 0)
		s.Stall(Health|GPUStats, true)
		health, err := healthpb.NewHealthClient(cc).Watch(t.Context(), &healthpb.HealthCheckRequest{})
		require.NoError(t, err)
		stats, err := gpustatsv1.NewGPUStatsClient(cc).Watch(t.Context(), &gpustatsv1.WatchRequest{})
		require.NoError(t, err)
		came := make(chan string, 2)
		var recv sync.WaitGroup
		recv.Go(func() {
			resp, err := health.Recv()
			assert.NoError(t, err)
			came <- resp.GetStatus().String()
		})
		recv.Go(func() {
			r, err := stats.Recv()
			assert.NoError(t, err)
			came <- r.GetState().String()
		})
		s.NotReady(true)
		time.Sleep(time.Hour) // virtual
		assert.Empty(t, came)
		s.Stall(Health|GPUStats, false)
		recv.Wait()
		assert.ElementsMatch(t, []string{"NOT_SERVING", "SERVER_STATE_UNHEALTHY"}, []string{<-came, <-came})
	})
}

// TestNotReady: the server says so, while it says of its models what holds, and serves them.
func TestNotReady(t *testing.T) {
	for _, noWatch := range []bool{false, true} {
		cfg := exact(Config{Servers: 1, NoWatch: noWatch, ModelHealth: !noWatch, Explicit: true, Signals: Health | OIP | GPUStats})
		inBubble(t, cfg, func(t *testing.T, f *Fleet) {
			s, cc := f.Servers[0], channel(t, f, 0)
			c := oip.NewClient(cc)
			s.Preload("m")
			says := func(ready bool) {
				t.Helper()
				want := map[bool]healthpb.HealthCheckResponse_ServingStatus{
					true: healthpb.HealthCheckResponse_SERVING, false: healthpb.HealthCheckResponse_NOT_SERVING,
				}
				resp, err := healthpb.NewHealthClient(cc).Check(t.Context(), &healthpb.HealthCheckRequest{})
				require.NoError(t, err)
				assert.Equal(t, want[ready], resp.GetStatus())
				got, err := c.ServerReady(t.Context())
				require.NoError(t, err)
				assert.Equal(t, ready, got)
				stats, err := gpustatsv1.NewGPUStatsClient(cc).Get(t.Context(), &gpustatsv1.GetRequest{})
				require.NoError(t, err)
				assert.Equal(t, ready, stats.GetState() == gpustatsv1.ServerState_SERVER_STATE_READY)

				got, err = c.ModelReady(t.Context(), "m")
				require.NoError(t, err)
				assert.True(t, got)
				require.Len(t, stats.GetModels(), 1)
				assert.Equal(t, gpustatsv1.ModelState_MODEL_STATE_READY, stats.GetModels()[0].GetState())
				if !noWatch {
					resp, err = healthpb.NewHealthClient(cc).Check(t.Context(), &healthpb.HealthCheckRequest{Service: "m"})
					require.NoError(t, err)
					assert.Equal(t, want[true], resp.GetStatus())
				}
				_, err = c.Infer(t.Context(), NewRequest("m", 0))
				require.NoError(t, err)
			}
			says(true)
			s.NotReady(true)
			says(false)
			s.NotReady(false)
			says(true)
			s.NotReady(true)
			require.NoError(t, f.Reset())
			s.Preload("m")
			says(true)
		})
	}
}

func TestFlap(t *testing.T) {
	inBubble(t, Config{Servers: 1, Scale: 0.5}, func(t *testing.T, f *Fleet) {
		s := f.Servers[0]
		watch, err := healthpb.NewHealthClient(channel(t, f, 0)).Watch(t.Context(), &healthpb.HealthCheckRequest{})
		require.NoError(t, err)
		next := func() healthpb.HealthCheckResponse_ServingStatus {
			resp, err := watch.Recv()
			require.NoError(t, err)
			return resp.GetStatus()
		}
		assert.Equal(t, healthpb.HealthCheckResponse_SERVING, next())
		s.Flap(100 * time.Millisecond)
		begin := time.Now()
		for i := range 10 {
			assert.Equal(t, healthpb.HealthCheckResponse_NOT_SERVING, next())
			assert.Equal(t, time.Duration(2*i)*50*time.Millisecond, time.Since(begin), "50 ms on the wall")
			ready, err := client(t, f, 0).ServerReady(t.Context())
			require.NoError(t, err)
			assert.False(t, ready)
			assert.Equal(t, healthpb.HealthCheckResponse_SERVING, next())
			assert.Equal(t, time.Duration(2*i+1)*50*time.Millisecond, time.Since(begin))
		}
		s.Flap(0)
		quiet := make(chan error, 1)
		go func() {
			_, err := watch.Recv()
			quiet <- err
		}()
		time.Sleep(time.Hour) // virtual
		assert.Empty(t, quiet)
		s.Kill()
		assert.Error(t, <-quiet)
		assert.PanicsWithValue(t, "fleet: Flap(-1ns): want a period of 0 or more", func() { s.Flap(-1) })
	})
}

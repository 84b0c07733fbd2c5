package replay

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/mlbalancer/mlbalancer/examples/fleet/breakers"
	"github.com/mlbalancer/mlbalancer/examples/fleet/fault"
	"github.com/mlbalancer/mlbalancer/examples/fleet/policy"
	"github.com/mlbalancer/mlbalancer/examples/fleet/schedule"
	"github.com/mlbalancer/mlbalancer/examples/fleet/stats"
	"github.com/mlbalancer/mlbalancer/examples/fleet/trace"
	"github.com/mlbalancer/mlbalancer/internal/fleet"
	"github.com/mlbalancer/mlbalancer/internal/oip"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	rows   = 60
	warmup = 1
	passes = 2
)

// options replay 60 rows for three models three times on two servers, in about 50 ms.
func options(t *testing.T, name string) Options {
	t.Helper()
	return optionsOf(t, name, 3)
}

func optionsOf(t *testing.T, name string, models int) Options {
	t.Helper()
	requests := &trace.Trace{}
	for i := range rows {
		requests.Rows = append(requests.Rows, trace.Row{Arrival: float64(i), Model: fmt.Sprintf("model-%d", i%models),
			InputTokens: trace.Unknown, OutputTokens: trace.Unknown, Duration: trace.Unknown})
	}
	policies, err := policy.Select(name)
	require.NoError(t, err)
	return Options{
		Schedule: schedule.New(requests, schedule.Options{
			Workers: 8, Rho: .7, Service: 250 * time.Millisecond, Warmup: warmup, Passes: passes, Clients: 2, Seed: 1}),
		Policy:   policies[0],
		Fleet:    fleet.Config{Servers: 2, Workers: 4, Slots: models, Load: time.Second, Scale: 1. / 200, Seed: 1},
		Clients:  2,
		Deadline: 40 * time.Minute, // 12 s on the wall
		Seed:     1,
	}
}

func TestEveryPolicy(t *testing.T) {
	for _, name := range policy.Names() {
		t.Run(name, func(t *testing.T) {
			result, err := Run(t.Context(), options(t, name))
			require.NoError(t, err)
			figures := stats.Of(result.Samples, result.Servers)
			assert.Equal(t, rows*passes, figures.Calls)
			assert.Zero(t, figures.Errors, figures.ErrorCodes)
			for _, s := range result.Samples {
				assert.Positive(t, s.Latency)
			}
			calls := uint64(0)
			for _, s := range result.Servers {
				calls += s.Calls
				assert.Positive(t, s.Busy)
			}
			assert.GreaterOrEqual(t, calls, uint64(rows*passes), "servers saw every measured call")
			assert.LessOrEqual(t, calls, uint64(rows*(warmup+passes)))
			assert.Len(t, result.Resident, 3)
		})
	}
}

// TestModelHeader looks at what reaches the servers: policies that read the message must not need a header.
func TestModelHeader(t *testing.T) {
	for _, name := range policy.Names() {
		o := options(t, name)
		var with, without atomic.Int64
		o.Fleet.ServerOptions = []grpc.ServerOption{grpc.ChainUnaryInterceptor(
			func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
				infer, ok := req.(*oip.ModelInferRequest)
				if !ok { // the policy asks how the server is
					return handler(ctx, req)
				}
				got := metadata.ValueFromIncomingContext(ctx, policy.ModelHeader)
				if len(got) == 1 && got[0] == infer.GetModelName() {
					with.Add(1)
				} else {
					without.Add(1)
				}
				return handler(ctx, req)
			})}
		_, err := Run(t.Context(), o)
		require.NoError(t, err)
		if o.Policy.Header {
			assert.Zero(t, without.Load(), name)
		} else {
			assert.Zero(t, with.Load(), name)
		}
	}
}

func TestFaults(t *testing.T) {
	run := func(t *testing.T, list string) stats.Figures {
		o := options(t, "round_robin")
		o.Fleet.Scale = 1. / 50
		o.Deadline = 10 * time.Minute
		var err error
		o.Faults, err = fault.Parse(list, 2, o.Schedule.Models)
		require.NoError(t, err)
		result, err := Run(t.Context(), o)
		require.NoError(t, err)
		return stats.Of(result.Samples, result.Servers)
	}
	t.Run("last", func(t *testing.T) {
		f := run(t, "fail:0@0%,fail:1@0%")
		assert.Positive(t, f.Errors)
		assert.Equal(t, map[string]int{"Unavailable": f.Errors}, f.ErrorCodes)
		assert.InDelta(t, (10 * time.Minute).Milliseconds(), f.P99, 1, "a failed call counts with the deadline")
	})
	t.Run("end", func(t *testing.T) {
		f := run(t, "kill:0@10%-20%,slow:1@5%-30%,hang:0@30%-31%,stop:0@40%-60%,drain:0@70%-90%,restart:1@80%")
		assert.Equal(t, rows*passes, f.Calls)
	})
}

// TestBreakers has a server fail all its calls for most of the measured part, without retries: what is counted about the breakers
// adds up to what their callers see.
func TestBreakers(t *testing.T) {
	o := options(t, "model_aware")
	o.Policy = o.Policy.WithoutRetry()
	o.Fleet.Scale = 1. / 10
	var err error
	o.Faults, err = fault.Parse("fail:0@10%", 2, o.Schedule.Models)
	require.NoError(t, err)
	result, err := Run(t.Context(), o)
	require.NoError(t, err)
	b := result.Breakers
	require.NotNil(t, b)
	require.NotEmpty(t, b.Opened)
	assert.Positive(t, b.Totals.Trips)
	figures := stats.Of(result.Samples, result.Servers)
	assert.GreaterOrEqual(t, b.Totals.Failed, figures.Errors, "those of calls that were due before are counted as well")
	assert.Equal(t, map[string]int{"Unavailable: the server was told to fail": figures.Errors}, figures.ErrorTexts)
	assert.Positive(t, b.Totals.Probes)
	sum := breakers.Totals{}
	for _, o := range b.Opened {
		assert.Positive(t, o.Trips)
		sum.Trips, sum.InFlight = sum.Trips+o.Trips, sum.InFlight+o.InFlight
		sum.Probes, sum.Failed = sum.Probes+o.Probes, sum.Failed+o.Failed
	}
	assert.Equal(t, b.Totals, sum)
	for _, c := range b.Changes {
		assert.Zero(t, c.Server)
		assert.Positive(t, c.At)
		assert.NotEmpty(t, c.Reason)
	}

	o = options(t, "round_robin")
	result, err = Run(t.Context(), o)
	require.NoError(t, err)
	assert.Nil(t, result.Breakers)
}

// TestDrainsAreSeen has enough models that each channel loses some which the server has just served: so it knows that the server is
// going away. Nothing but the calls tells it.
func TestDrainsAreSeen(t *testing.T) {
	o := optionsOf(t, "model_aware", 12)
	o.Fleet.Signals = fleet.NoSignals
	o.Fleet.Scale = 1. / 10
	var err error
	o.Faults, err = fault.Parse("drain:0@10%-90%", 2, o.Schedule.Models)
	require.NoError(t, err)
	result, err := Run(t.Context(), o)
	require.NoError(t, err)
	require.NotEmpty(t, result.Breakers.Drains)
	for _, d := range result.Breakers.Drains {
		assert.Zero(t, d.Server)
		assert.Greater(t, d.To, d.From)
	}
}

func TestResidency(t *testing.T) {
	start := time.Now()
	s := &schedule.Schedule{Models: []string{"a", "b", "c"}, From: 100 * time.Second, To: 200 * time.Second}
	r := &run{Options: Options{Schedule: s}, clock: clock{start: start, scale: .5}}
	event := func(at float64, server int, model string, kind fleet.EventKind) fleet.Event {
		return fleet.Event{Time: start.Add(time.Duration(at / 2 * float64(time.Second))), Server: server, Model: model, Kind: kind}
	}
	got := r.residency([]fleet.Event{
		event(10, 0, "a", fleet.Loading), event(20, 0, "a", fleet.Loaded), // for good
		event(50, 0, "b", fleet.Loaded), event(90, 0, "b", fleet.Evicted), // before the measured part only
		event(60, 1, "b", fleet.Loaded), event(125, 1, "b", fleet.Evicted), // into it
		event(150, 1, "b", fleet.Loaded), event(160, 1, "b", fleet.Evicted), // within it, on the same server
		event(170, 1, "c", fleet.Loading), event(175, 1, "c", fleet.Evicted), // never ready
		event(190, 0, "c", fleet.Loaded), event(230, 0, "c", fleet.Evicted), // out of it
		event(210, 1, "a", fleet.Loaded), // after it
	}, 2)
	want := [][]float64{{1, 0}, {0, .35}, {.1, 0}}
	for m := range want {
		assert.InDeltaSlice(t, want[m], got[m], 1e-9, s.Models[m])
	}
}

func TestCancel(t *testing.T) {
	o := options(t, "round_robin")
	o.Fleet.Scale = 1 // takes ten seconds
	ctx, cancel := context.WithCancel(t.Context())
	o.Progress = func(done float64) {
		if done > 0 {
			cancel()
		}
	}
	began := time.Now()
	_, err := Run(ctx, o)
	assert.ErrorIs(t, err, context.Canceled)
	assert.Less(t, time.Since(began), 5*time.Second)
}

func TestAddresses(t *testing.T) {
	assert.Len(t, addressesFor(1, 100), 100)
	assert.Equal(t, addressesFor(1, 8), addressesFor(1, 8))
	assert.NotEqual(t, addressesFor(1, 8), addressesFor(2, 8))
}

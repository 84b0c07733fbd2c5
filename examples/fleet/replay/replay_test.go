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

	"github.com/mlbalancer/mlbalancer/examples/fleet/fault"
	"github.com/mlbalancer/mlbalancer/examples/fleet/policy"
	"github.com/mlbalancer/mlbalancer/examples/fleet/schedule"
	"github.com/mlbalancer/mlbalancer/examples/fleet/stats"
	"github.com/mlbalancer/mlbalancer/examples/fleet/trace"
	"github.com/mlbalancer/mlbalancer/internal/fleet"
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
	requests := &trace.Trace{}
	for i := range rows {
		requests.Rows = append(requests.Rows, trace.Row{Arrival: float64(i), Model: fmt.Sprintf("model-%d", i%3),
			InputTokens: trace.Unknown, OutputTokens: trace.Unknown, Duration: trace.Unknown})
	}
	policies, err := policy.Select(name)
	require.NoError(t, err)
	return Options{
		Schedule: schedule.New(requests, schedule.Options{
			Workers: 8, Rho: .7, Service: 250 * time.Millisecond, Warmup: warmup, Passes: passes, Clients: 2, Seed: 1}),
		Policy:   policies[0],
		Fleet:    fleet.Config{Servers: 2, Workers: 4, Slots: 3, Load: time.Second, Scale: 1. / 200, Seed: 1},
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
			for model, servers := range result.Resident {
				held := 0.
				for _, share := range servers {
					assert.True(t, share >= 0 && share <= 1, share)
					held += share
				}
				assert.Positive(t, held, "model %d was in memory somewhere", model)
			}
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
				want := req.(interface{ GetModelName() string }).GetModelName()
				if got := metadata.ValueFromIncomingContext(ctx, policy.ModelHeader); len(got) == 1 && got[0] == want {
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
	run := func(t *testing.T, speed float64, list string) stats.Figures {
		o := options(t, "round_robin")
		o.Fleet.Scale = 1 / speed
		o.Deadline = 10 * time.Minute
		var err error
		o.Faults, err = fault.Parse(list, 2)
		require.NoError(t, err)
		result, err := Run(t.Context(), o)
		require.NoError(t, err)
		return stats.Of(result.Samples, result.Servers)
	}
	t.Run("fail", func(t *testing.T) {
		f := run(t, 50, "fail:0@0%,fail:1@0%")
		assert.Equal(t, map[string]int{"Unavailable": f.Errors}, f.ErrorCodes)
		assert.InDelta(t, rows*passes, f.Errors, rows*passes/2, "most calls of the measured part fail")
		assert.InDelta(t, (10 * time.Minute).Milliseconds(), f.P99, 1, "a failed call counts with the deadline")
	})
	t.Run("restart", func(t *testing.T) {
		f := run(t, 10, "restart:0@20%,restart:1@20%")
		assert.Positive(t, f.ColdLoads, "memory is lost: %+v", f)
	})
	t.Run("ends", func(t *testing.T) {
		run(t, 50, "kill:0@10%-20%,slow:1@5%-30%,hang:0@30%-31%,stop:0@40%-60%,drain:0@70%-90%")
	})
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

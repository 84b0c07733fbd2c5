package fault

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer/internal/fleet"
	"github.com/mlbalancer/mlbalancer/internal/oip"
	gpustatsv1 "github.com/mlbalancer/mlbalancer/proto/mlbalancer/gpustats/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestApply lets every kind of fault happen to a server, and asks it before, during and after.
func TestApply(t *testing.T) {
	for spec, during := range map[string]codes.Code{
		"slow:0x50@0%-50%": codes.OK,
		"fail:0@0%-50%":    codes.Unavailable,
		"hang:0@0%-50%":    codes.DeadlineExceeded,
		"kill:0@0%-50%":    codes.Unavailable,
		"stop:0@0%-50%":    codes.Unavailable,
		"drain:0@0%-50%":   codes.NotFound, // or for the first moment UNAVAILABLE, as Triton does
		"restart:0@0%":     codes.OK,
		"restart:0@0%-50%": codes.Unavailable,

		"broken-model:0@0%-50%":       codes.Internal,
		"broken-model:0/other@0%-50%": codes.OK,
	} {
		t.Run(spec, func(t *testing.T) {
			faults, err := Parse(spec, 1, []string{"m", "other"})
			require.NoError(t, err)
			f, err := fleet.Start(fleet.Config{Servers: 1, Scale: 1e-3, InMemory: true})
			require.NoError(t, err)
			defer f.Close()
			ask := func() (time.Duration, codes.Code) {
				// A channel of its own each time, so that none waits to connect again.
				cc, err := grpc.NewClient("passthrough:///"+f.Addrs()[0], f.DialOptions()...)
				require.NoError(t, err)
				defer cc.Close()
				ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
				defer cancel()
				began := time.Now()
				_, err = oip.NewClient(cc).Infer(ctx, fleet.NewRequest("m", time.Second)) // 1 ms on the wall
				return time.Since(began), status.Code(err)
			}
			_, code := ask()
			require.Equal(t, codes.OK, code)

			require.NoError(t, faults[0].Begin(f.Servers))
			took, code := ask()
			if faults[0].Kind != "drain" || code != codes.Unavailable {
				assert.Equal(t, during, code)
			}
			if faults[0].Kind == "slow" {
				assert.GreaterOrEqual(t, took, 50*time.Millisecond)
			}
			if faults[0].Kind == "restart" && faults[0].Lasts() {
				assert.EqualValues(t, 2, f.Stats()[0].ColdLoads, "memory was lost")
			}

			require.NoError(t, faults[0].End(f.Servers))
			_, code = ask()
			assert.Equal(t, codes.OK, code)
		})
	}
}

// TestApplyToSignals asks a server how it is before, during and after each fault of its signals.
func TestApplyToSignals(t *testing.T) {
	for spec, during := range map[string]string{
		"stall:0/gpustats@0%-50%":    "DeadlineExceeded",
		"stall:0@0%-50%":             "DeadlineExceeded",
		"stall:0/oip@0%-50%":         "READY, 4 workers, 1 model",
		"mute:0/gpustats@0%-50%":     "Unimplemented",
		"lie-empty:0/gpustats@0%":    "READY, 4 workers, 0 model",
		"lie-idle:0@0%-50%":          "READY, 4 workers, 1 model",
		"lie-busy:0/gpustats@0%-50%": "READY, 4 workers, 1 model, 32 requests",
		"not-ready:0@0%-50%":         "UNHEALTHY, 4 workers, 1 model",
	} {
		t.Run(spec, func(t *testing.T) {
			faults, err := Parse(spec, 1, []string{"m"})
			require.NoError(t, err)
			f, err := fleet.Start(fleet.Config{Servers: 1, InMemory: true, Signals: allSignals})
			require.NoError(t, err)
			defer f.Close()
			f.Servers[0].Preload("m")
			cc, err := grpc.NewClient("passthrough:///"+f.Addrs()[0], f.DialOptions()...)
			require.NoError(t, err)
			defer cc.Close()
			ask := func() string {
				ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
				defer cancel()
				r, err := gpustatsv1.NewGPUStatsClient(cc).Get(ctx, &gpustatsv1.GetRequest{})
				if err != nil {
					return status.Code(err).String()
				}
				said := fmt.Sprintf("%s, %d workers, %d model",
					strings.TrimPrefix(r.GetState().String(), "SERVER_STATE_"), r.GetConcurrency(), len(r.GetModels()))
				if r.GetInFlight() > 0 {
					said += fmt.Sprintf(", %d requests", r.GetInFlight())
				}
				return said
			}
			const well = "READY, 4 workers, 1 model"
			require.Equal(t, well, ask())
			require.NoError(t, faults[0].Begin(f.Servers))
			assert.Equal(t, during, ask())
			_, err = oip.NewClient(cc).Infer(t.Context(), fleet.NewRequest("m", 0))
			require.NoError(t, err, "calls go on")
			require.NoError(t, faults[0].End(f.Servers))
			assert.Equal(t, well, ask())
		})
	}
}

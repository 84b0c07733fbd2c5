package cases

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/mlbalancer/mlbalancer/integration/rig"
)

const (
	isServing    = healthpb.HealthCheckResponse_SERVING
	isNotServing = healthpb.HealthCheckResponse_NOT_SERVING
	isUnknown    = healthpb.HealthCheckResponse_SERVICE_UNKNOWN
)

// eachChecked runs a test with whole service configs: one that leaves health checks to the policy, and one that has gRPC's own client do
// them as well.
func eachChecked(t *testing.T, section string, test func(t *testing.T, config string)) {
	for name, config := range map[string]string{"": rig.ServiceConfig(section), " and healthCheckConfig": checked(section)} {
		t.Run("sources"+name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) { test(t, config) })
		})
	}
}

// A Watch that ends at once must not be opened in a loop (grpc/grpc-go#4469). The process's CPU time is that of all four modes together.
func TestHLTH01(t *testing.T) {
	unavailable := rig.Refuses(codes.Unavailable, "the watch is over")
	f := rig.New(t, 8)
	modes := []struct {
		answer rig.Answer
		most   int
	}{
		{rig.Says(nil), 12},
		{rig.Says(nil, rig.IsServing(true)), 12},
		{rig.Says(unavailable, rig.IsServing(true)), 12},
		{rig.Says(rig.Hangs), 1},
	}
	for i, m := range modes {
		for _, b := range f.Backends[2*i : 2*i+2] {
			b.Answers(rig.HealthWatch, m.answer)
		}
		f.Client(rig.Setup{Endpoints: f.Endpoints()[2*i : 2*i+2]}).Connect()
	}
	rig.Eventually(t, func() bool { return f.Backends[7].Asked(rig.HealthWatch) > 0 }, rig.Patience, "the last one is asked")
	before := cpuTime(t)
	pause(t.Context(), 10*time.Second)
	used := cpuTime(t) - before
	t.Logf("%v of CPU time", used)
	for i, b := range f.Backends {
		n := b.Asked(rig.HealthWatch)
		t.Logf("mode %d, %s: %d watches", i/2+1, b.Name, n)
		assert.Positive(t, n)
		assert.LessOrEqual(t, n, modes[i/2].most, "mode %d", i/2+1)
	}
	assert.Less(t, used, 500*time.Millisecond, "CPU time in 10 s")
}

// cpuTime returns how long this process has had a processor.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// A server without the health service is healthy (grpc/grpc-go#2429); one that does not know its own name is not ready.
func TestHLTH03(t *testing.T) {
	t.Parallel()
	unknown := map[string]func(b *rig.Backend) (serves func()){
		"SERVICE_UNKNOWN": func(b *rig.Backend) func() {
			b.ServingStatus("", isUnknown)
			b.ServingStatus("another", isServing)
			return func() { b.Serving(true) }
		},
		"NOT_FOUND": func(b *rig.Backend) func() { // of a server that has only Check
			b.Answers(rig.HealthWatch, rig.Refuses(codes.Unimplemented, "no watch"))
			b.Answers(rig.HealthCheck, rig.Replies(func(context.Context, *healthpb.HealthCheckRequest) (proto.Message, error) {
				return nil, status.Error(codes.NotFound, "unknown service")
			}))
			return func() { b.Answers(rig.HealthCheck, nil) }
		},
	}
	for name, unknown := range unknown {
		for _, strategy := range strategies {
			t.Run(name+" "+strategy, func(t *testing.T) {
				eachChecked(t, fmt.Sprintf(`{"inference":{"strategy":%q}}`, strategy), func(t *testing.T, config string) {
					testWithoutHealth(t, config, unknown)
				})
			})
		}
	}
}

func testWithoutHealth(t *testing.T, config string, unknown func(b *rig.Backend) func()) {
	const calls, models = 3000, 1000
	f := rig.New(t, 3)
	for _, b := range f.Backends {
		b.Takes(time.Millisecond)
	}
	without, strange := f.Backends[1], f.Backends[2]
	without.Answers(rig.HealthWatch, rig.Refuses(codes.Unimplemented, "unknown service grpc.health.v1.Health"))
	without.Answers(rig.HealthCheck, rig.Refuses(codes.Unimplemented, "unknown service grpc.health.v1.Health"))
	serves := unknown(strange)
	c := f.Client(rig.Setup{Config: config})
	c.Ready(2)
	send := func() rig.Results {
		rs := rig.Closed(4, calls, func(i int) rig.Result { return c.Send(rig.Model(i%models), limit) })
		require.Empty(t, rs.Failed(), "%v", rs)
		t.Logf("%v", rs.By())
		return rs
	}
	assert.InDelta(t, .5, send().Share(without.Name), .05)
	assert.Zero(t, strange.Started())

	serves()
	pause(t.Context(), time.Second)
	rs := send()
	for _, b := range f.Backends {
		assert.InDelta(t, 1./3, rs.Share(b.Name), .05, "%s", b.Name)
		require.Equal(t, 1, b.Accepted())
	}
	assert.LessOrEqual(t, without.Asked(rig.HealthWatch), 2, "watches on a connection")
}

package orcaload

import (
	"testing"
	"time"

	v3orcapb "github.com/cncf/xds/go/xds/data/orca/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/mlbalancer/mlbalancer/internal/fleet"
	"github.com/mlbalancer/mlbalancer/internal/oip"
)

func TestMeter(t *testing.T) {
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	m := &meter{workers: 2, period: time.Second, at: start, since: start}

	m.begin(at(0))
	m.begin(at(0))
	m.begin(at(0)) // waits: there are two workers
	qps, utilization := m.end(at(500))
	assert.Zero(t, qps, "nothing is known before the first period has ended")
	assert.Zero(t, utilization)
	m.end(at(500))
	qps, utilization = m.end(at(1000))
	assert.InDelta(t, 3, qps, 1e-9)
	assert.InDelta(t, .75, utilization, 1e-9, "two workers for half a second, one for the other half")

	m.begin(at(1500))
	qps, utilization = m.end(at(1600))
	assert.InDelta(t, 3, qps, 1e-9, "the last full period stands until the next has ended")
	assert.InDelta(t, .75, utilization, 1e-9)
	m.begin(at(2500))
	qps, utilization = m.end(at(3000))
	assert.InDelta(t, 1, qps, 1e-9)
	assert.InDelta(t, .15, utilization, 1e-9)
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestReport asks a server until its replies carry a report.
func TestReport(t *testing.T) {
	f, err := fleet.Start(fleet.Config{Servers: 1, Scale: 1e-3, InMemory: true, ServerOptions: ServerOptions(4, time.Millisecond)})
	require.NoError(t, err)
	defer f.Close()
	cc, err := grpc.NewClient("passthrough:///"+f.Addrs()[0], f.DialOptions()...)
	require.NoError(t, err)
	defer cc.Close()
	require.Eventually(t, func() bool {
		var trailer metadata.MD
		_, err := oip.NewClient(cc).Infer(t.Context(), fleet.NewRequest("m", time.Second), grpc.Trailer(&trailer))
		require.NoError(t, err)
		reports := trailer.Get("endpoint-load-metrics-bin")
		if len(reports) == 0 {
			return false
		}
		var load v3orcapb.OrcaLoadReport
		require.NoError(t, proto.Unmarshal([]byte(reports[0]), &load))
		return load.RpsFractional > 0 && load.ApplicationUtilization > 0
	}, 10*time.Second, time.Millisecond)
}

// TestFleetsOwnReport: what the servers themselves report is what the generated code reads.
func TestFleetsOwnReport(t *testing.T) {
	f, err := fleet.Start(fleet.Config{Servers: 1, Workers: 3, Slots: 4, Scale: 1e-3, InMemory: true, Signals: fleet.ORCA, LoadCV: -1})
	require.NoError(t, err)
	defer f.Close()
	f.Servers[0].Preload("m")
	cc, err := grpc.NewClient("passthrough:///"+f.Addrs()[0], f.DialOptions()...)
	require.NoError(t, err)
	defer cc.Close()
	require.Eventually(t, func() bool {
		var trailer metadata.MD
		_, err := oip.NewClient(cc).Infer(t.Context(), fleet.NewRequest("m", time.Second), grpc.Trailer(&trailer))
		require.NoError(t, err)
		reports := trailer.Get("endpoint-load-metrics-bin")
		require.Len(t, reports, 1)
		var load v3orcapb.OrcaLoadReport
		require.NoError(t, proto.Unmarshal([]byte(reports[0]), &load))
		assert.Empty(t, load.ProtoReflect().GetUnknown())
		assert.Len(t, load.NamedMetrics, 8)
		assert.Equal(t, 3., load.NamedMetrics["mlbalancer.workers"])
		assert.Equal(t, .75, load.NamedMetrics["mlbalancer.gpu_memory_free"])
		assert.InDelta(t, .005, load.NamedMetrics["mlbalancer.load_seconds"], 1e-9)
		return load.RpsFractional > 0 && load.ApplicationUtilization > 0
	}, 10*time.Second, time.Millisecond)
}

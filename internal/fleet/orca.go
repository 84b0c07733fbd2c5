package fleet

import (
	"context"
	"math"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"
)

// orcaTrailer is the trailer that carries a load report (gRFC A51).
const orcaTrailer = "endpoint-load-metrics-bin"

// The fields of xds.data.orca.v3.OrcaLoadReport, and of an entry in its maps.
const (
	fieldRPS          protowire.Number = 6
	fieldNamedMetrics protowire.Number = 8
	fieldUtilization  protowire.Number = 9

	fieldKey   protowire.Number = 1
	fieldValue protowire.Number = 2
)

// orca returns the load report for the trailer of a call that has just ended; nil if there is none.
func (s *Server) orca() []byte {
	if !s.speaks(ORCA) || s.faults.stalled&ORCA != 0 {
		return nil
	}
	l := s.load(ORCA)
	utilization, rps := s.meter.read(s.gpu, s.tally.ok)
	switch {
	case s.faults.lies[Idle]&ORCA != 0:
		utilization, rps = 0, 0
	case s.faults.lies[Busy]&ORCA != 0:
		utilization = 1
	}
	report := make([]byte, 0, 320)
	report = appendDouble(report, fieldRPS, rps/s.clock.scale)
	report = appendDouble(report, fieldUtilization, utilization)
	for _, m := range [...]struct {
		name  string
		value float64
	}{
		{"mlbalancer.active", float64(l.active)},
		{"mlbalancer.waiting", float64(l.waiting)},
		{"mlbalancer.workers", float64(l.workers)},
		{"mlbalancer.connections", float64(l.connections)},
		{"mlbalancer.gpu_memory_free", l.memoryFree},
		{"mlbalancer.queue_delay_seconds", l.queueDelay.Seconds()},
		{"mlbalancer.lane_free_seconds", l.laneFree.Seconds()},
		{"mlbalancer.load_seconds", l.loadTime.Seconds()},
	} {
		report = protowire.AppendTag(report, fieldNamedMetrics, protowire.BytesType)
		report = protowire.AppendVarint(report, uint64(1+protowire.SizeBytes(len(m.name))+1+protowire.SizeFixed64()))
		report = protowire.AppendTag(report, fieldKey, protowire.BytesType)
		report = protowire.AppendString(report, m.name)
		report = appendDouble(report, fieldValue, m.value)
	}
	return report
}

func appendDouble(b []byte, field protowire.Number, v float64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(b, field, protowire.Fixed64Type), math.Float64bits(v))
}

// setTrailer sets a load report as a call's trailer, if there is one.
func setTrailer(ctx context.Context, report []byte) {
	if report != nil {
		_ = grpc.SetTrailer(ctx, metadata.Pairs(orcaTrailer, string(report))) // fails only outside of a call
	}
}

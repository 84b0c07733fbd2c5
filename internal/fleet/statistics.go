package fleet

import (
	"context"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer/internal/oip"
)

func (v *service) ModelStatistics(
	ctx context.Context, req *oip.ModelStatisticsRequest,
) (*oip.ModelStatisticsResponse, error) {
	resp := &oip.ModelStatisticsResponse{}
	err := v.server.tellModels(ctx, func() error {
		models := v.server.told(OIP)
		for _, name := range slices.Sorted(maps.Keys(models)) {
			if m := models[name]; m.state == resident && (req.GetName() == "" || req.GetName() == name) {
				resp.ModelStats = append(resp.ModelStats, m.statistics(v.server.clock))
			}
		}
		if req.GetName() != "" && len(resp.ModelStats) == 0 {
			return status.Errorf(codes.InvalidArgument, "requested model '%s' is not available", req.GetName())
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// statistics returns the model's statistics in wall-clock time, which is what its clients measure in.
func (m *model) statistics(c clock) *oip.ModelStatistics {
	duration := func(count uint64, d ...time.Duration) *oip.StatisticDuration {
		var sum time.Duration
		for _, d := range d {
			sum += c.wall(d)
		}
		return &oip.StatisticDuration{Count: count, Ns: uint64(sum)}
	}
	st := &oip.ModelStatistics{
		Name: m.name, Version: modelVersion, InferenceCount: m.served.count, ExecutionCount: m.served.count,
		InferenceStats: &oip.InferStatistics{
			Success:       duration(m.served.count, m.served.queue, m.served.compute),
			Fail:          duration(m.served.failed),
			Queue:         duration(m.served.count, m.served.queue),
			ComputeInput:  duration(m.served.count),
			ComputeInfer:  duration(m.served.count, m.served.compute),
			ComputeOutput: duration(m.served.count),
			CacheHit:      duration(0),
			CacheMiss:     duration(0),
		},
	}
	if m.served.count > 0 {
		st.LastInference = uint64(c.at(m.served.last).UnixMilli())
	}
	return st
}

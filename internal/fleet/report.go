package fleet

import (
	"cmp"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	gpustatsv1 "github.com/mlbalancer/mlbalancer/proto/mlbalancer/gpustats/v1"
)

// slotBytes is the memory that a model takes, and a slot holds.
const slotBytes = 8 << 30

// report returns what the server says of itself in mlbalancer.gpustats.v1.
func (s *Server) report() *gpustatsv1.NodeReport {
	l := s.load(GPUStats)
	r := &gpustatsv1.NodeReport{
		State:          gpustatsv1.ServerState_SERVER_STATE_READY.Enum(),
		InFlight:       proto.Int64(int64(l.active)),
		Waiting:        proto.Int64(int64(l.waiting)),
		Connections:    proto.Int64(int64(l.connections)),
		Concurrency:    proto.Int64(int64(l.workers)),
		Utilization:    proto.Float64(l.busy),
		QueueDelay:     durationpb.New(l.queueDelay),
		ModelsComplete: proto.Bool(true),
		LoadsOnDemand:  proto.Bool(!s.cfg.Explicit),
		LaneFreeIn:     durationpb.New(l.laneFree),
		LoadTime:       durationpb.New(l.loadTime),
		Victim:         s.reportVictim(),
		Models:         s.reportModels(),
	}
	switch {
	case s.faults.draining:
		r.State = gpustatsv1.ServerState_SERVER_STATE_DRAINING.Enum()
	case !s.faults.ready(s.gpu.now):
		r.State = gpustatsv1.ServerState_SERVER_STATE_UNHEALTHY.Enum()
	}
	total := int64(s.gpu.slots) * slotBytes
	r.Gpus = []*gpustatsv1.GPU{{
		Uuid:             proto.String("GPU-" + s.Name()),
		MemoryTotalBytes: proto.Int64(total),
		MemoryUsedBytes:  proto.Int64(total - int64(l.memoryFree*float64(total))),
		Utilization:      proto.Float64(l.busy),
	}}
	return r
}

// reportModels returns the models that are in memory, on their way into it or out of it, or that failed to load, by name.
func (s *Server) reportModels() []*gpustatsv1.Model {
	var models []*gpustatsv1.Model
	idle := s.faults.lies[Idle]&GPUStats != 0
	for _, m := range s.told(GPUStats) {
		r := &gpustatsv1.Model{Name: proto.String(m.name)}
		switch m.state {
		case absent, unloaded:
			continue
		case inLane:
			r.State = gpustatsv1.ModelState_MODEL_STATE_LOADING.Enum()
			r.LoadEta = durationpb.New(s.clock.wall(s.gpu.loadETA(m, s.cfg.Load)))
		case resident:
			r.State = gpustatsv1.ModelState_MODEL_STATE_READY.Enum()
		case unloading:
			r.State = gpustatsv1.ModelState_MODEL_STATE_UNLOADING.Enum()
		case failed:
			r.State = gpustatsv1.ModelState_MODEL_STATE_UNAVAILABLE.Enum()
		}
		if m.inMemory() {
			r.ResidentBytes = proto.Int64(slotBytes)
		}
		if !idle {
			running := 0
			for _, j := range s.gpu.running {
				if j.model == m {
					running++
				}
			}
			r.Running, r.Pending = proto.Int64(int64(running)), proto.Int64(int64(m.holds-running+m.waits()))
		}
		if m.served.count > 0 {
			r.ServiceTime = durationpb.New(s.clock.wall(m.served.compute / time.Duration(m.served.count)))
		}
		models = append(models, r)
	}
	slices.SortFunc(models, func(a, b *gpustatsv1.Model) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return models
}

// reportVictim says what would have to leave memory for another model: nothing does by itself in explicit mode.
func (s *Server) reportVictim() *gpustatsv1.Victim {
	g := s.gpu
	if g.occupied < g.slots || s.faults.lies[Empty]&GPUStats != 0 {
		return &gpustatsv1.Victim{Kind: gpustatsv1.Victim_KIND_ROOM.Enum()}
	}
	if g.explicit {
		return nil
	}
	idle, lru := g.leastUsed()
	switch {
	case idle != nil:
		return &gpustatsv1.Victim{
			Kind: gpustatsv1.Victim_KIND_IDLE.Enum(), Model: &idle.name,
			LastUsedAge: durationpb.New(s.clock.wall(g.now - idle.usedAt)),
		}
	case lru != nil:
		return &gpustatsv1.Victim{Kind: gpustatsv1.Victim_KIND_BUSY.Enum(), Model: &lru.name}
	}
	return &gpustatsv1.Victim{Kind: gpustatsv1.Victim_KIND_BUSY.Enum()}
}

// waits returns how many requests wait for the model's load.
func (m *model) waits() int {
	n := 0
	for _, j := range m.waiting {
		if !j.loadOnly {
			n++
		}
	}
	return n
}

package gpustats

import (
	"math"
	"time"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/mlbalancer/mlbalancer/health"
	gpb "github.com/mlbalancer/mlbalancer/proto/mlbalancer/gpustats/v1"
)

const (
	// maxCount and maxTime are the largest numbers that are believed, as the protocol has them.
	maxCount = math.MaxInt32
	maxTime  = 365 * 24 * time.Hour
	// maxUtilization is the highest utilization that is believed.
	maxUtilization = 100
	// maxAge is the greatest age of a report; what looks older is of a clock that has been set.
	maxAge = time.Minute
	// soon is how long a load takes that is about to end: 0 would say that nothing is known.
	soon = time.Millisecond
)

// converter makes health.Reports of NodeReports. It uses its memory again for each.
type converter struct {
	interval time.Duration
	filtered bool // whether only some models were asked for

	apart time.Duration // of the server's clock and ours, at least, as of at
	at    time.Time     // zero before the first report that says when it was made

	report   health.Report
	versions []versioned // by place in the last report
}

// convert returns what m says, at now. What it returns holds until the next call.
func (c *converter) convert(m *gpb.NodeReport, now time.Time) *health.Report {
	age := c.ageOf(m, now)
	r := &c.report
	*r = health.Report{
		Server:   serverState(m),
		Load:     load(m, age),
		Models:   r.Models[:0],
		OnDemand: answer(m.LoadsOnDemand),
		Interval: c.interval,
		Age:      age,
	}
	whole := c.appendModels(m.Models, age)
	complete := len(m.Models) > 0
	if m.ModelsComplete != nil {
		complete = *m.ModelsComplete
	}
	r.Complete = complete && whole && !c.filtered
	r.Firsthand = r.Complete
	return r
}

// ageOf returns by how much older a report is than the youngest that the server has made lately: clocks need not agree, so what they are apart is
// taken for what the youngest took. That is forgotten by a twentieth of the time that passes, or at once where it cannot be, since clocks are set.
func (c *converter) ageOf(m *gpb.NodeReport, now time.Time) time.Duration {
	if m.SampledAt == nil || m.SampledAt.CheckValid() != nil {
		return 0
	}
	const forgets = 20
	apart := now.Sub(m.SampledAt.AsTime())
	least := c.apart + now.Sub(c.at)/forgets
	if c.at.IsZero() || apart < least || apart-least >= maxAge {
		least = apart
	}
	c.apart, c.at = least, now
	return apart - least
}

func serverState(m *gpb.NodeReport) health.ServerState {
	switch m.GetState() {
	case gpb.ServerState_SERVER_STATE_DRAINING:
		return health.ServerDraining
	case gpb.ServerState_SERVER_STATE_STARTING, gpb.ServerState_SERVER_STATE_UNHEALTHY:
		return health.ServerNotReady
	}
	if len(m.Gpus) > 0 && !anyHealthy(m.Gpus) {
		return health.ServerNotReady
	}
	if m.GetState() == gpb.ServerState_SERVER_STATE_READY {
		return health.ServerReady
	}
	return health.ServerUnknown
}

func answer(b *bool) health.Answer {
	switch {
	case b == nil:
		return health.Unknown
	case *b:
		return health.Yes
	}
	return health.No
}

func load(m *gpb.NodeReport, age time.Duration) health.Load {
	var l health.Load
	count := func(field health.Fields, to *int, from *int64, least int64) {
		if from != nil && *from >= least && *from <= maxCount {
			*to = int(*from)
			l.Has |= field
		}
	}
	count(health.HasActive, &l.Active, m.InFlight, 0)
	count(health.HasWaiting, &l.Waiting, m.Waiting, 0)
	count(health.HasConnections, &l.Connections, m.Connections, 0)
	count(health.HasWorkers, &l.Workers, m.Concurrency, 1)
	if u := m.Utilization; u != nil && *u >= 0 && *u <= maxUtilization {
		l.Utilization = *u
		l.Has |= health.HasUtilization
	}
	if d, ok := duration(m.QueueDelay); ok {
		l.QueueDelay = d
		l.Has |= health.HasQueueDelay
	}
	if share, ok := memoryFree(m.Gpus); ok {
		l.MemoryFree = share
		l.Has |= health.HasMemoryFree
	}
	if d, ok := duration(m.LaneFreeIn); ok {
		l.LaneFree = max(0, d-age)
		l.Has |= health.HasLaneFree
	}
	if d, ok := duration(m.LoadTime); ok && d > 0 {
		l.LoadTime = d
		l.Has |= health.HasLoadTime
	}
	victim(&l, m.Victim, age)
	return l
}

func victim(l *health.Load, v *gpb.Victim, age time.Duration) {
	switch v.GetKind() {
	case gpb.Victim_KIND_ROOM:
		l.Has |= health.HasVictim
		return
	case gpb.Victim_KIND_IDLE:
		l.Victim = health.VictimIdle
		if d, ok := duration(v.LastUsedAge); ok {
			l.VictimAge = d + age
		}
	case gpb.Victim_KIND_BUSY:
		l.Victim = health.VictimBusy
	default:
		return
	}
	l.Has |= health.HasVictim
	if name := v.GetModel(); name != "" && len(name) <= maxName {
		l.VictimModel = xxhash.Sum64String(name) // as picker.Key
	}
}

// duration returns d if it is there, valid and within bounds.
func duration(d *durationpb.Duration) (time.Duration, bool) {
	if d == nil || d.Seconds < 0 || d.Seconds > int64(maxTime/time.Second) || d.Nanos < 0 || d.Nanos >= int32(time.Second) {
		return 0, false
	}
	v := time.Duration(d.Seconds)*time.Second + time.Duration(d.Nanos)
	return v, v <= maxTime
}

func healthy(g *gpb.GPU) bool { return g.Healthy == nil || *g.Healthy }

func anyHealthy(gpus []*gpb.GPU) bool {
	for _, g := range gpus {
		if healthy(g) {
			return true
		}
	}
	return false
}

// memoryFree returns the share of memory that is free on the GPUs that work, as far as they say.
func memoryFree(gpus []*gpb.GPU) (share float64, ok bool) {
	var free, total float64
	for _, g := range gpus {
		if !healthy(g) {
			continue
		}
		if f, t, ok := memory(g); ok {
			free += f
			total += t
		}
	}
	if total == 0 {
		return 0, false
	}
	return free / total, true
}

// memory returns the free and the total memory of a GPU. Numbers that contradict each other say nothing.
func memory(g *gpb.GPU) (free, total float64, ok bool) {
	bytes := func(b *int64) (float64, bool) {
		if b == nil || *b < 0 {
			return 0, false
		}
		return float64(*b), true
	}
	used, hasUsed := bytes(g.MemoryUsedBytes)
	free, hasFree := bytes(g.MemoryFreeBytes)
	total, hasTotal := bytes(g.MemoryTotalBytes)
	switch {
	case hasTotal && hasFree:
	case hasTotal && hasUsed:
		free = total - used
	case hasUsed && hasFree && g.MemoryTotalBytes == nil:
		total = used + free
	default:
		return 0, 0, false
	}
	return free, total, total > 0 && free >= 0 && free <= total
}

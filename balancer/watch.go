package balancer

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	gbalancer "google.golang.org/grpc/balancer"

	"github.com/mlbalancer/mlbalancer/health"
	"github.com/mlbalancer/mlbalancer/health/monitor"
	"github.com/mlbalancer/mlbalancer/picker"
)

// watch is one child's view of its server's health while it is connected. It is the sink of the monitor's reports.
type watch struct {
	policy   *policy
	endpoint *picker.Endpoint
	unheard  atomic.Uint32 // sources that have not spoken yet, by number
	stop     func()
}

// watchHealth starts asking the server that a SubConn is connected to. The caller must be one of gRPC's calls into the policy and must not hold
// policy.mu.
func (p *policy) watchHealth(sc gbalancer.SubConn, m *member, c *HealthConfig) *watch {
	w := &watch{policy: p, endpoint: m.endpoint}
	var sources, beside []int
	for i, name := range monitor.Names() {
		if !c.asks(name) {
			continue
		}
		if name == gpuStats && c.GPUStatsPort != 0 {
			beside = append(beside, i)
		} else {
			sources = append(sources, i)
		}
		w.unheard.Store(w.unheard.Load() | 1<<i)
	}
	if len(sources)+len(beside) == 0 {
		w.stop = func() {}
		return w
	}
	producer, release := sc.GetOrBuildProducer(probers)
	pr, ok := producer.(*prober)
	if !ok { // only the connections of tests have none
		w.unheard.Store(0)
		w.stop = release
		return w
	}
	ctx, cancel := context.WithCancel(pr.ctx)
	o := &monitor.Options{Interval: time.Duration(c.Interval), Models: p.models}
	ended := make(chan struct{})
	pr.wg.Go(func() {
		defer close(ended)
		var wg sync.WaitGroup
		if len(beside) > 0 {
			wg.Go(func() { p.sidecars.run(ctx, m.resolved.Addresses[0], c.GPUStatsPort, beside, o, w) })
		}
		monitor.Run(ctx, pr, sources, o, w)
		wg.Wait()
	})
	w.stop = func() {
		cancel()
		<-ended
		release()
	}
	return w
}

// hearing reports whether a source has yet to say its first word.
func (w *watch) hearing() bool { return w != nil && w.unheard.Load() != 0 }

// Report implements monitor.Sink.
func (w *watch) Report(source int, r *health.Report) {
	w.policy.guard.Report(w.endpoint, source, monotonic(), r)
	w.heard(source)
}

// Withdraw implements monitor.Sink.
func (w *watch) Withdraw(source int) { w.policy.guard.Withdraw(w.endpoint, source, monotonic()) }

// Silent implements monitor.Sink. What the source said to an earlier watch over the same connection is void.
func (w *watch) Silent(source int) {
	w.Withdraw(source)
	w.heard(source)
}

// heard notes that a source has spoken. After the last one's first word the endpoint may get calls, and whoever publishes that must not be waited
// for here.
func (w *watch) heard(source int) {
	bit := uint32(1) << source
	if w.unheard.Load()&bit == 0 {
		return
	}
	if before := w.unheard.And(^bit); before == bit {
		go w.policy.publish()
	}
}

// publish publishes what has changed.
func (p *policy) publish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.publishLocked()
}

// maxInterest bounds the models that sources are told of.
const maxInterest = 256

// interestFor is how long after its last call a model is still one that sources are told of.
const interestFor = int64(10 * time.Minute)

// models returns the models that the channel uses, the latest first. Servers are asked for them where they do not say themselves what they have.
func (p *policy) models() []string {
	table := p.current.Load() // policy.mu is not for those whom gRPC waits for
	now := monotonic()
	p.interest.Lock()
	defer p.interest.Unlock()
	if now-p.interest.at < int64(time.Second)/2 && p.interest.at != 0 {
		return p.interest.models
	}
	used := map[string]int64{}
	for i := range table.Len() {
		if e := table.Member(i).Endpoint; e != nil {
			for m := range e.Models() {
				if u := m.Used(); u > 0 && now-u < interestFor {
					used[m.Name()] = max(used[m.Name()], u)
				}
			}
		}
	}
	p.interest.at = now
	p.interest.models = make([]string, 0, len(used))
	for name := range used {
		p.interest.models = append(p.interest.models, name)
	}
	slices.SortFunc(p.interest.models, func(a, b string) int { return cmp.Or(cmp.Compare(used[b], used[a]), cmp.Compare(a, b)) })
	p.interest.models = p.interest.models[:min(len(p.interest.models), maxInterest)]
	return p.interest.models
}

// interest is the answer of models, which all connections ask for, for half a second.
type interest struct {
	sync.Mutex
	at     int64
	models []string
}

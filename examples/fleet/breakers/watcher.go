package breakers

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/mlbalancer/mlbalancer/balancer"
)

// every is the wall-clock time between two looks at a channel.
const every = 20 * time.Millisecond

// Watcher watches channels to the same servers. Make it, make each channel with the option of Channel, Start it, and Stop it when the last
// call has ended.
type Watcher struct {
	addresses, addrs []string
	began            time.Time
	scale            float64
	channels         []*channel
	cancel           context.CancelFunc
	watching         sync.WaitGroup
}

// New returns a Watcher of channels that know the servers by addresses, and reach them where they listen, at addrs. The measured part
// begins at began, and scale is wall-clock time per model time.
func New(addresses, addrs []string, began time.Time, scale float64) *Watcher {
	return &Watcher{addresses: addresses, addrs: addrs, began: began, scale: scale}
}

// channel is what is known of one channel. Its goroutine alone looks at it until it has ended.
type channel struct {
	attempts attempts
	cc       *grpc.ClientConn
	seen     map[balancer.Transition]bool
	changes  []balancer.Transition
	draining map[string]time.Time // since when
	drains   []drain
	last     balancer.State
}

type drain struct {
	endpoint string
	from, to time.Time
}

// Dial returns options for the next channel, and a function that is to be handed the channel.
func (w *Watcher) Dial() (grpc.DialOption, func(*grpc.ClientConn)) {
	c := &channel{attempts: attempts{addrs: w.addrs}, seen: make(map[balancer.Transition]bool), draining: make(map[string]time.Time)}
	w.channels = append(w.channels, c)
	return grpc.WithStatsHandler(&c.attempts), func(cc *grpc.ClientConn) { c.cc = cc }
}

// Start begins to watch. It goes on until Stop.
func (w *Watcher) Start(ctx context.Context) {
	ctx, w.cancel = context.WithCancel(ctx)
	for _, c := range w.channels {
		w.watching.Go(func() {
			ticker := time.NewTicker(every)
			defer ticker.Stop()
			for {
				c.look(ctx)
				select {
				case <-ticker.C:
				case <-ctx.Done():
					return
				}
			}
		})
	}
}

// look notes what a channel's breakers have done since the last time.
func (c *channel) look(ctx context.Context) {
	state, err := balancer.Snapshot(ctx, c.cc)
	if err != nil || len(state.Endpoints) == 0 {
		return // it has no policy yet, or the watch is over
	}
	now := time.Now()
	for _, t := range state.Transitions {
		if !c.seen[t] {
			c.seen[t] = true
			c.changes = append(c.changes, t)
		}
	}
	for _, e := range state.Endpoints {
		since, was := c.draining[e.Name]
		switch {
		case e.Draining && !was:
			c.draining[e.Name] = now
		case !e.Draining && was:
			c.drains = append(c.drains, drain{e.Name, since, now})
			delete(c.draining, e.Name)
		}
	}
	c.last = state
}

// Stop ends the watch and returns what was seen.
func (w *Watcher) Stop(ctx context.Context) *Record {
	w.cancel()
	w.watching.Wait()
	r := &Record{Changes: []Change{}, Opened: []Opened{}}
	for i, c := range w.channels {
		c.look(ctx)
		w.add(r, i, c)
	}
	slices.SortStableFunc(r.Changes, func(a, b Change) int { return cmp.Compare(a.At, b.At) })
	slices.SortStableFunc(r.Drains, func(a, b Drain) int { return cmp.Compare(a.From, b.From) })
	return r
}

// add adds what one channel saw to a record.
func (w *Watcher) add(r *Record, index int, c *channel) {
	server := make(map[string]int)
	probes := make([]int, len(w.addresses))
	for _, e := range c.last.Endpoints {
		i := slices.Index(w.addresses, e.Addresses[0])
		server[e.Name] = i
		probes[i] = int(e.Picks["probe"])
	}
	opened := make([]Totals, len(w.addresses))
	for _, t := range c.changes {
		i := server[t.Endpoint]
		r.Changes = append(r.Changes, Change{
			At: w.model(t.Time), Channel: index, Server: i, Model: t.Model, From: t.From, To: t.To, Reason: t.Reason,
		})
		if t.Model == "" && t.From == "closed" {
			opened[i].Trips++
			// gRPC says that the attempt has ended after it told the policy, which opened the breaker.
			opened[i].InFlight += max(0, c.attempts.inFlight(i, t.Time)-1)
		}
	}
	for i, o := range opened {
		if o.Trips > 0 {
			o.Probes, o.Failed = probes[i], c.attempts.failed(i, w.began)
			r.Opened = append(r.Opened, Opened{Channel: index, Server: i, Totals: o})
			r.Totals.add(o)
		}
	}
	for name, since := range c.draining {
		c.drains = append(c.drains, drain{name, since, time.Now()})
	}
	for _, d := range c.drains {
		r.Drains = append(r.Drains, Drain{Channel: index, Server: server[d.endpoint], From: w.model(d.from), To: w.model(d.to)})
	}
}

// model returns the model time of a moment, in milliseconds since the measured part began.
func (w *Watcher) model(at time.Time) float64 {
	return float64(at.Sub(w.began)) / w.scale / float64(time.Millisecond)
}

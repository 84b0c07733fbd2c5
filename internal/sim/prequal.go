package sim

import (
	"slices"
	"time"
)

// Prequal's parameters, as its authors recommend (NSDI 2024).
const (
	prequalPool     = 16
	prequalProbes   = 3    // per call
	prequalQuantile = 0.84 // of the calls in flight, above which a server is hot
	prequalAge      = time.Second
	prequalHistory  = 128 // probes that the quantile is taken of
)

// prequal is the baseline prequal.
type prequal struct {
	quiet
	f       *Fleet
	rif     []int32     // calls in flight, by server
	latency []latencies // by server
	clients []prequalClient
}

type prequalClient struct {
	pool    []probe
	oldest  bool // the next removal is of the oldest probe, else of the worst
	seen    [prequalHistory]int32
	nSeen   int
	hotFrom int32
}

// probe is what a server answered.
type probe struct {
	server  int32
	at      time.Duration
	rif     int32
	latency float64
}

func newPrequal(f *Fleet) Policy {
	p := &prequal{
		f: f, rif: make([]int32, len(f.servers)), latency: make([]latencies, len(f.servers)),
		clients: make([]prequalClient, f.Clients),
	}
	return p
}

// Place implements Policy. The probes that a call sends are for those after it. Its tag is how many others were in flight where
// it went.
func (p *prequal) Place(now time.Duration, c *Call) int {
	client := &p.clients[c.Client]
	client.pool = slices.DeleteFunc(client.pool, func(q probe) bool { return now-q.at > prequalAge })
	server := p.choose(client)
	p.probe(client, now)
	client.drop()
	c.tag = p.rif[server]
	p.rif[server]++
	return int(server)
}

// choose takes the coldest of the pool by the rule hot-cold-lexicographic. With three probes a call there is no need to use one
// twice.
func (p *prequal) choose(client *prequalClient) int32 {
	if len(client.pool) < 2 {
		return p.f.members[p.f.rand.IntN(len(p.f.members))]
	}
	best := 0
	for i := range client.pool {
		if client.better(&client.pool[i], &client.pool[best]) {
			best = i
		}
	}
	server := client.pool[best].server
	client.pool = slices.Delete(client.pool, best, best+1)
	return server
}

// better reports whether a is to be chosen rather than b.
func (c *prequalClient) better(a, b *probe) bool {
	hotA, hotB := a.rif > c.hotFrom, b.rif > c.hotFrom
	switch {
	case hotA != hotB:
		return hotB
	case hotA:
		return a.rif < b.rif
	}
	return a.latency < b.latency
}

// probe asks some servers.
func (p *prequal) probe(client *prequalClient, now time.Duration) {
	members := p.f.members
	for range min(prequalProbes, len(members)) {
		i := members[p.f.rand.IntN(len(members))]
		client.pool = slices.DeleteFunc(client.pool, func(q probe) bool { return q.server == i })
		if len(client.pool) == prequalPool {
			client.pool = slices.Delete(client.pool, 0, 1)
		}
		client.pool = append(client.pool, probe{server: i, at: now, rif: p.rif[i], latency: p.latency[i].at(p.rif[i])})
		client.seen[client.nSeen%prequalHistory] = p.rif[i]
		client.nSeen++
	}
	var sorted [prequalHistory]int32
	n := copy(sorted[:], client.seen[:min(client.nSeen, prequalHistory)])
	slices.Sort(sorted[:n])
	client.hotFrom = sorted[min(n-1, int(prequalQuantile*float64(n)))]
}

// drop removes a probe: the oldest and the worst in turn.
func (c *prequalClient) drop() {
	if len(c.pool) < prequalPool {
		return
	}
	c.oldest = !c.oldest
	at := 0
	if !c.oldest {
		for i := range c.pool {
			if c.better(&c.pool[at], &c.pool[i]) {
				at = i
			}
		}
	}
	c.pool = slices.Delete(c.pool, at, at+1)
}

// Done implements Policy.
func (p *prequal) Done(now time.Duration, c *Call, _ Outcome) {
	p.rif[c.Server]--
	p.latency[c.Server].add(c.tag, (now - c.Sent).Seconds())
}

const (
	latencyLevels  = 64 // of calls in flight that latencies are kept for; more count as the last
	latencySamples = 8
)

// latencies are the last latencies of a server by how many calls it had when the call came.
type latencies struct {
	samples [latencyLevels][latencySamples]float64
	n       [latencyLevels]int
}

func (l *latencies) add(rif int32, seconds float64) {
	at := min(rif, latencyLevels-1)
	l.samples[at][l.n[at]%latencySamples] = seconds
	l.n[at]++
}

// at returns the median latency at the number of calls in flight nearest to rif that there is one for; 0 if there is none.
func (l *latencies) at(rif int32) float64 {
	at := int(min(rif, latencyLevels-1))
	for d := range latencyLevels {
		for _, i := range [2]int{at - d, at + d} {
			if i >= 0 && i < latencyLevels && l.n[i] > 0 {
				var sorted [latencySamples]float64
				n := copy(sorted[:], l.samples[i][:min(l.n[i], latencySamples)])
				slices.Sort(sorted[:n])
				return sorted[n/2]
			}
		}
	}
	return 0
}

package picker

import "github.com/mlbalancer/mlbalancer/health"

// scoreTurns is how many looks at an endpoint there are to each at which its score is made anew: that changes within seconds, not within
// the tenth of a second between two looks.
const scoreTurns = 5

// examine does what time does to an endpoint's health: reports go stale, slow starts end, and the score follows what calls and reports have shown.
func (g *Guard) examine(e *Endpoint, now int64, index int) {
	if rs := &e.reports; now >= rs.expires.Load() && rs.expires.Load() != 0 {
		rs.mu.Lock()
		g.settle(e, now, false)
		rs.mu.Unlock()
	}
	if e.stands()&ramping != 0 && e.started(now) >= 1 {
		e.stand(0, ramping)
	}
	if (g.turn+index)%scoreTurns != 0 {
		return
	}
	f := &e.facts
	e.score.Update(now, g.health.Load(), &e.vitals, health.LoadView{
		MemoryFree: f.free(), MemoryFreeAt: f.memoryAt.Load(),
		Connections: float64(f.connections.Load()), ConnectionsAt: f.connAt.Load(),
		OwnInFlight: e.InFlight(),
	})
	if e.score.Healthy() {
		e.stand(0, ailing)
	} else {
		e.stand(ailing, ailing)
	}
}

package picker

import (
	"github.com/mlbalancer/mlbalancer/breaker"
	"github.com/mlbalancer/mlbalancer/health"
)

// scoreTurns is how many looks at an endpoint there are to each at which its score is made anew: that changes within seconds, not within
// the tenth of a second between two looks.
const scoreTurns = 5

// examine does what time does to an endpoint's health: reports go stale, slow starts end, and the score follows what calls and reports have shown.
// It is for Watch alone.
func (g *Guard) examine(e *Endpoint, now int64, index int) {
	if rs := &e.reports; now >= rs.expires.Load() && rs.expires.Load() != 0 {
		rs.mu.Lock()
		g.settle(e, now, false)
		rs.mu.Unlock()
	}
	if e.stands()&ramping != 0 && e.started(now) >= 1 {
		e.stand(0, ramping)
	}
	tripped := e.breaker.State() != breaker.Closed
	if e.tripped && !tripped { // it has shown that it is well: what it did before is over, and would keep calls from it
		e.score.Reset(now)
		e.standByScore()
	}
	e.tripped = tripped
	if (g.turn+index)%scoreTurns != 0 {
		return
	}
	f, c := &e.facts, g.health.Load()
	longer := max(0, 3*f.period.Load()-int64(c.StaleAfter)) // that what is said seldom counts
	e.score.Update(now, c, &e.vitals, health.LoadView{
		MemoryFree: f.free(), MemoryFreeAt: since(f.memoryAt.Load(), longer),
		Connections: float64(f.connections.Load()), ConnectionsAt: since(f.connAt.Load(), longer),
		OwnInFlight: e.InFlight(),
	})
	e.standByScore()
}

// standByScore takes an endpoint out whose score is low.
func (e *Endpoint) standByScore() {
	if e.score.Healthy() {
		e.stand(0, ailing)
	} else {
		e.stand(ailing, ailing)
	}
}

// since returns a time that is later by some, unless it is 0 and none.
func since(at, later int64) int64 {
	if at == 0 {
		return 0
	}
	return at + later
}

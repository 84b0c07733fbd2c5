package picker

import "sync/atomic"

func init() { Register(func() Options { return &RoundRobinOptions{} }) }

// RoundRobinOptions configures the strategy "round_robin": ready endpoints take turns, whatever their load and their weight
// (0 excepted). It has no options and is there to compare with.
type RoundRobinOptions struct{}

// Strategy implements Options.
func (*RoundRobinOptions) Strategy() string { return "round_robin" }

// Validate implements Options.
func (*RoundRobinOptions) Validate() error { return nil }

// Build implements Options. The first turn is a random one, so that clients that start together do not start on the same server.
func (*RoundRobinOptions) Build(b Build) Strategy {
	r := &roundRobin{}
	r.turn.Store(b.Rand())
	return r
}

// roundRobin is the strategy of RoundRobinOptions.
type roundRobin struct {
	_    [64]byte
	turn atomic.Uint64 // written by every pick, so alone on its cache line
	_    [64]byte
}

// Pick implements Strategy.
func (r *roundRobin) Pick(t *Table, q *Query) Choice {
	n := uint64(len(t.ready))
	turn := r.turn.Add(1)
	for k := range n {
		if i := t.ready[(turn+k)%n]; t.admits(t.members[i].Endpoint, q) {
			return Choice{Index: int(i), Reason: Turn}
		}
	}
	return t.refuse()
}

// Package breaker keeps calls away from endpoints that fail, hang or are slow, and lets them back carefully. It knows no gRPC,
// starts no goroutine and reads no clock: time is an argument, in nanoseconds since an arbitrary fixed point.
//
// A [Breaker] guards an endpoint, a [Pair] a model on an endpoint, and a [Group] is the endpoints of one channel. A call takes
// a [Permit] and ends it with its [Outcome]:
//
//	p, ok := b.Allow(now, slow)
//	if !ok { ... } // another endpoint
//	...
//	b.Done(p, now, breaker.Success)
//
// Neither takes a lock, allocates or, for a call that succeeds in time, writes to more than one cache line, which goroutines
// seldom share. One goroutine ticks:
//
//	freed := g.Tick(now) // every 50 to 100 ms; freed: calls that were refused may try again
//	g.Drain(func(e breaker.Event) { ... })
//
// # States
//
// A closed breaker opens by one of these rules, each of which can be switched off (see [Config]):
//
//   - calls failed in a row;
//   - so many calls in a row failed, or are past their slow time and still in flight, while nothing else was answered;
//   - a share of the calls in a sliding window failed;
//   - a share of them was slow, calls still in flight included, and the rest of the group was not as slow;
//   - calls failed significantly more often than those of the rest of the group, by a sequential test. It finds an endpoint that
//     fails a fifth of its calls within about 20 of them, and opens nothing where all endpoints fail alike.
//
// An open breaker refuses calls for OpenFor x 2^k, and up to half as much more at random, where k is how often it has opened
// again without having been steady since. After that it is half-open: it lets a few probes through, each with a lease, which
// fails it when it runs out. One probe that fails opens it again; when enough have succeeded it closes, and its traffic is to
// be brought back along its ramp.
//
// Results have a vote in the state that their calls began in, and in no other.
package breaker

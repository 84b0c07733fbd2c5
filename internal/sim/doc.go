// Package sim runs load-balancing policies against a fleet of simulated model servers in virtual time: clients whose
// requests arrive at random times, servers with a run queue and memory for a few models, and the reports that the clients get of
// them. It drives the decision core that the gRPC policy uses ([Product]), baselines, and bounds that no client can reach.
//
// The nouns:
//
//   - a [Scenario] says what fleet, what traffic, and what goes wrong;
//   - a [Call] is one request, a [Policy] says which server gets it;
//   - a [Run] is one policy in one scenario with one seed, a [Result] what came of it, and [Figures] what several add up to.
//
// Runs are deterministic: the same scenario, policy and seed give the same result. Arrivals, models and work belong to the
// request, and the times of loads to the server and the number of the load, so all policies meet the same. A run starts no
// goroutine.
package sim

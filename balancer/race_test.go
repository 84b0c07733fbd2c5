//go:build race

package balancer

// poolNoise is how many allocations per run a sync.Pool may add: under the race detector it drops items at random, and an attempt
// that is made anew is two allocations.
const poolNoise = 2

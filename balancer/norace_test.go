//go:build !race

package balancer

// poolNoise is how many allocations per run a sync.Pool may add.
const poolNoise = 0

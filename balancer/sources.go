package balancer

// The sources of health: each registers itself, and is asked unless health.sources says otherwise.
import (
	_ "github.com/mlbalancer/mlbalancer/health/gpustats"
	_ "github.com/mlbalancer/mlbalancer/health/oip"
	_ "github.com/mlbalancer/mlbalancer/health/orca"
	_ "github.com/mlbalancer/mlbalancer/health/standard"
)

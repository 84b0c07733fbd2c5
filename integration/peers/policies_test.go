package peers

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	gbalancer "google.golang.org/grpc/balancer"
	_ "google.golang.org/grpc/balancer/leastrequest"
	_ "google.golang.org/grpc/balancer/ringhash"
	_ "google.golang.org/grpc/balancer/weightedroundrobin"
	"google.golang.org/grpc/serviceconfig"
	_ "google.golang.org/grpc/xds" // registers outlier_detection_experimental

	"github.com/mlbalancer/mlbalancer"
)

// modelHeader is the metadata key that names the model.
const modelHeader = "x-model-id"

// policy is a load-balancing policy under a configuration.
type policy struct {
	label  string // what its rows are called
	name   string // what it is registered as
	config string // JSON
	lazy   bool   // connects only when a pick needs the connection
	sticky bool   // sends the calls of one model to one endpoint
	header bool   // knows the model by metadata only
	asks   bool   // asks each server about its health before it gives it calls
	told   int    // and servers say how busy they are, and which of so many models they hold; 0: they have nothing to say
}

var (
	roundRobin = policy{label: "round_robin", name: "round_robin", config: `{}`}
	weighted   = policy{label: "weighted_round_robin", name: "weighted_round_robin", config: `{}`}
	least      = policy{label: "least_request", name: "least_request_experimental", config: `{}`}
	ringHash   = policy{label: "ring_hash", name: "ring_hash_experimental", lazy: true, sticky: true, header: true,
		config: `{"requestHashHeader": "` + modelHeader + `"}`}
	outlier = policy{label: "outlier_detection+round_robin", name: "outlier_detection_experimental",
		config: `{"successRateEjection": {}, "childPolicy": [{"round_robin": {}}]}`}

	modelAware = policy{label: "model_aware", name: "model_aware", sticky: true, asks: true, config: `{}`}

	// modelAwareTold places calls where their models are; modelAware, which servers say nothing to, by their hashes.
	modelAwareTold = policy{label: "model_aware_told", name: "model_aware", asks: true, told: nModels, config: `{}`}

	policies = []policy{roundRobin, weighted, least, ringHash, outlier, modelAware}
)

// ringHashFine is ring_hash with as many points as model_aware has by default for 1000 endpoints. grpc-go cuts its rings off
// at GRPC_RING_HASH_CAP, which it reads at start-up, so the second result says whether it can be had in this process.
func ringHashFine() (policy, bool) {
	p := ringHash
	p.label = "ring_hash_150k"
	p.config = `{"requestHashHeader": "` + modelHeader + `", "minRingSize": 150000, "maxRingSize": 150000}`
	return p, os.Getenv("GRPC_RING_HASH_CAP") == "150000"
}

// build returns the policy's builder and its parsed configuration.
func (p policy) build(tb testing.TB) (gbalancer.Builder, serviceconfig.LoadBalancingConfig) {
	tb.Helper()
	b := gbalancer.Get(p.name)
	require.NotNil(tb, b, "no policy is registered as %q", p.name)
	parser, ok := b.(gbalancer.ConfigParser)
	if !ok {
		return b, nil
	}
	config, err := parser.ParseConfig(json.RawMessage(p.config))
	require.NoError(tb, err, p.label)
	return b, config
}

// dialOptions selects the policy for a channel.
func (p policy) dialOptions() []grpc.DialOption {
	if p.name == modelAware.name {
		return mlbalancer.DialOptions()
	}
	return []grpc.DialOption{grpc.WithDefaultServiceConfig(fmt.Sprintf(`{"loadBalancingConfig": [{%q: %s}]}`, p.name, p.config))}
}

// Package early makes a channel while the program is still being initialised. It knows the policy by its import for side effects only.
package early

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	_ "github.com/mlbalancer/mlbalancer/balancer"
)

// Channel and Err are what came of it.
var (
	Channel *grpc.ClientConn
	Err     error
)

// Target is what the channel is to: an address that nothing answers at.
const Target = "passthrough:///early"

func init() {
	Channel, Err = grpc.NewClient(Target,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"model_aware":{"ring":{"virtualNodes":10}}}]}`))
}

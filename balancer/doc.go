// Package balancer is the gRPC load-balancing policy "model_aware". Importing it registers the policy; a service
// config selects it:
//
//	{"loadBalancingConfig": [{"model_aware": {}}]}
//
// It joins what the other packages know. [github.com/mlbalancer/mlbalancer/picker] decides; this package keeps the connections and
// turns each change of membership, readiness or configuration into one immutable picker:
//
//   - a resolver's update becomes a membership: identities with stable indices (membership.go);
//   - each endpoint has one pick_first child under grpc's endpointsharding, whose SubConns are watched for their raw state, so that
//     a pick can return the READY one directly (child.go);
//   - policy.go publishes a new picker only when something that routing reads has changed;
//   - snapshot.go is the pick path: read the request once, ask the table, count the call in, count it out.
package balancer

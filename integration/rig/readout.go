package rig

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	gbalancer "google.golang.org/grpc/balancer"

	"github.com/mlbalancer/mlbalancer/balancer"
)

var (
	errNotSent   = errors.New("nothing is sent over a channel without a network")
	errNoStreams = errors.New("a channel without a network has no streams")
)

// Invoke implements grpc.ClientConnInterface, so that balancer.Snapshot can read the policy out: a call is picked for and goes nowhere.
func (c *Channel) Invoke(ctx context.Context, method string, _, _ any, _ ...grpc.CallOption) error {
	r, err := c.Picker().Pick(gbalancer.PickInfo{FullMethodName: method, Ctx: ctx})
	if err != nil {
		return err
	}
	r.Done(gbalancer.DoneInfo{Err: errNotSent})
	return errNotSent
}

// NewStream implements grpc.ClientConnInterface.
func (c *Channel) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errNoStreams
}

// Snapshot returns what the policy knows, be it closed or not.
func (c *Channel) Snapshot() balancer.State {
	c.tb.Helper()
	s, err := balancer.Snapshot(context.Background(), c)
	if err != nil {
		c.tb.Fatalf("snapshot: %v", err)
	}
	return s
}

// Close closes the policy. Its last picker can still be asked.
func (c *Channel) Close() {
	if !c.closed {
		c.closed = true
		c.policy.Close()
		c.settle()
	}
}

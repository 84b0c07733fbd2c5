package integration

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	gresolver "google.golang.org/grpc/resolver"

	"github.com/mlbalancer/mlbalancer"
	"github.com/mlbalancer/mlbalancer/integration/rig"
	"github.com/mlbalancer/mlbalancer/picker"
)

var logged *rig.Log

func TestMain(m *testing.M) {
	logged = rig.CaptureLog()
	goleak.VerifyTestMain(m)
}

// limit is the deadline of calls that a test gives no other.
const limit = 10 * time.Second

// inBubble runs a test, beside others, in time of its own that passes only while all its goroutines wait.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Parallel()
	synctest.Test(t, test)
}

// interceptors are those of mlbalancer.DialOptions, without its service config.
var interceptors = []grpc.DialOption{
	grpc.WithChainUnaryInterceptor(mlbalancer.UnaryClientInterceptor()),
	grpc.WithChainStreamInterceptor(mlbalancer.StreamClientInterceptor()),
}

// silent is a resolver that has not said anything yet.
var silent = []gresolver.Endpoint{}

// home returns the address of a model's home among endpoints, under a config.
func home(t *testing.T, config, model string, eps ...gresolver.Endpoint) string {
	t.Helper()
	return rig.ModelAware(t, config, eps...).Pick(rig.ForModel(context.Background(), model), rig.Infer)
}

// modelAt returns a model whose home is the endpoint at an address.
func modelAt(t *testing.T, addr string, eps ...gresolver.Endpoint) string {
	t.Helper()
	for i := range 1000 {
		if home(t, `{}`, rig.Model(i), eps...) == addr {
			return rig.Model(i)
		}
	}
	t.Fatalf("no model lives at %s", addr)
	return ""
}

// decide sends one call and returns what became of it, and where the policy sent it.
func decide(c *rig.Client, model string, opts ...grpc.CallOption) (rig.Result, picker.Decision) {
	var d picker.Decision
	r := c.Send(model, limit, append(opts, mlbalancer.WithDecision(&d))...)
	return r, d
}

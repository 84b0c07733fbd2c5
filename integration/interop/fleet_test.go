package interop

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"

	"github.com/mlbalancer/mlbalancer"
	"github.com/mlbalancer/mlbalancer/balancer"
	"github.com/mlbalancer/mlbalancer/breaker"
	"github.com/mlbalancer/mlbalancer/examples/triton/inference"
	"github.com/mlbalancer/mlbalancer/integration/interop/servers"
	"github.com/mlbalancer/mlbalancer/integration/rig"
	"github.com/mlbalancer/mlbalancer/picker"
)

const (
	rate      = 200 // calls a second
	takes     = 20 * time.Millisecond
	limit     = 5 * time.Second  // of a call
	patience  = 60 * time.Second // with servers that start or load
	moveLimit = 2 * time.Second  // within which calls must have moved away
)

// policy is a load-balancing policy as an application chooses it.
type policy struct {
	name    string
	options func() []grpc.DialOption
	exact   bool // a model's calls go to its home, whatever the load, while it can be called there
}

var (
	modelAware     = policy{name: "model_aware", options: func() []grpc.DialOption { return mlbalancer.DialOptions() }}
	withoutRetries = policy{name: "model_aware, no retries", options: func() []grpc.DialOption {
		return mlbalancer.DialOptions(mlbalancer.WithoutRetry())
	}}
	onRing = policy{name: "model_aware, ring", exact: true, options: func() []grpc.DialOption {
		ring := picker.Defaults("ring").(*picker.RingOptions)
		ring.LoadFactor = 100
		return mlbalancer.DialOptions(mlbalancer.WithConfig(&balancer.Config{
			Inference: balancer.StrategyConfig{Strategy: "ring"}, Strategies: []picker.Options{ring},
		}))
	}}
	quickStart = policy{name: modelAware.name, options: func() []grpc.DialOption {
		start := &balancer.SlowStartConfig{Window: breaker.Duration(3 * time.Second)}
		return mlbalancer.DialOptions(mlbalancer.WithConfig(&balancer.Config{SlowStart: start}))
	}} // a server that comes back gets its calls in seconds, not in half a minute
	roundRobin = policy{name: "round_robin", options: func() []grpc.DialOption {
		return []grpc.DialOption{grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`)}
	}}
)

// The models of every fleet, by the server that is their home on the ring.
var (
	modelsOfA = []string{"m0", "m3"}
	modelsOfB = []string{"m1", "m2"}
)

func modelsOfAll() []string { return slices.Concat(modelsOfA, modelsOfB) }

// fleet is two servers, a and b, and a channel to them.
type fleet struct {
	t      *testing.T
	kind   *servers.Kind
	policy policy
	a, b   *servers.Server
	client inference.GRPCInferenceServiceClient
	conn   *grpc.ClientConn
}

// under runs a scenario with a fleet of its own under each of some policies.
func under(t *testing.T, k *servers.Kind, policies []policy, extra []servers.Model, scenario func(t *testing.T, f *fleet)) {
	t.Helper()
	for _, p := range policies {
		t.Run(p.name, func(t *testing.T) { scenario(t, newFleet(t, k, p, extra...)) })
	}
}

// newFleet is a fleet of servers with the same models, those of every fleet and some more, that has been called.
func newFleet(t *testing.T, k *servers.Kind, p policy, extra ...servers.Model) *fleet {
	t.Helper()
	models := slices.Clone(extra)
	for _, m := range modelsOfAll() {
		models = append(models, servers.Model{Name: m, Takes: takes})
	}
	f := startFleet(t, k, p, models, models)
	f.warm()
	return f
}

// startFleet is a fleet of servers with the models of a and of b.
func startFleet(t *testing.T, k *servers.Kind, p policy, ofA, ofB []servers.Model) *fleet {
	t.Helper()
	f := &fleet{t: t, kind: k, policy: p}
	require.NoError(t, rack.Install(t.Context(), k))
	var starting sync.WaitGroup
	starting.Go(func() { f.a = startServer(t, k, "a", ofA) })
	starting.Go(func() { f.b = startServer(t, k, "b", ofB) })
	starting.Wait()
	require.False(t, t.Failed())
	f.conn, f.client = f.dial()
	return f
}

// startServer starts a server that is closed with the test. It marks the test as failed if it cannot.
func startServer(t *testing.T, k *servers.Kind, name string, models []servers.Model) *servers.Server {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := rack.Start(ctx, k, name, models...)
	if !assert.NoError(t, err) {
		return nil
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s says:\n%s", name, s.Log(30))
		}
		s.Close()
	})
	return s
}

// target returns the target that names both servers.
func (f *fleet) target() string {
	return fmt.Sprintf("mlb-static:///%s;name=a,%s;name=b", f.a.Addr, f.b.Addr)
}

// dial makes a channel as an application does.
func (f *fleet) dial() (*grpc.ClientConn, inference.GRPCInferenceServiceClient) {
	f.t.Helper()
	opts := append(f.policy.options(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	conn, err := grpc.NewClient(f.target(), opts...)
	require.NoError(f.t, err)
	f.t.Cleanup(func() { _ = conn.Close() })
	return conn, inference.NewGRPCInferenceServiceClient(conn)
}

// warm makes a second of calls, so that connections stand and nothing is new.
func (f *fleet) warm() {
	f.t.Helper()
	calls := f.during(modelsOfAll(), func() { pass(time.Second) }).all()
	require.Empty(f.t, calls.Failed(), calls)
	by := calls.By()
	require.Positive(f.t, by["a"], by)
	require.Positive(f.t, by["b"], by)
}

// call calls a model once.
func (f *fleet) call(client inference.GRPCInferenceServiceClient, model string) rig.Result {
	return rig.Timed(limit, func(ctx context.Context) (string, error) {
		var p peer.Peer
		_, err := client.ModelInfer(ctx, request(model), grpc.Peer(&p))
		return f.nameOf(p), err
	})
}

// nameOf returns the name of the server that was asked last.
func (f *fleet) nameOf(p peer.Peer) string {
	if p.Addr == nil {
		return ""
	}
	for _, s := range []*servers.Server{f.a, f.b} {
		if s.Addr == p.Addr.String() {
			return s.Name
		}
	}
	return ""
}

func request(model string) *inference.ModelInferRequest {
	raw := binary.LittleEndian.AppendUint32(nil, math.Float32bits(1))
	return &inference.ModelInferRequest{
		ModelName:        model,
		Inputs:           []*inference.ModelInferRequest_InferInputTensor{{Name: "x", Datatype: "FP32", Shape: []int64{1, 1}}},
		RawInputContents: [][]byte{raw},
	}
}

// during calls some models at random, rate times a second in all, while do runs, and returns what became of the calls.
func (f *fleet) during(models []string, do func()) traffic {
	ctx, cancel := context.WithCancel(f.t.Context())
	defer cancel()
	ended := make(chan rig.Results, 1)
	go func() {
		ended <- rig.Open(ctx, rate, func(i int) rig.Result { return f.call(f.client, modelOf(models, i)) })
	}()
	do()
	cancel()
	return traffic{models, <-ended}
}

// modelOf returns the model that call i is for. Models in turn would be in step with servers in turn.
func modelOf(models []string, i int) string {
	return models[rand.New(rand.NewPCG(uint64(i), 0)).IntN(len(models))]
}

// traffic is calls of some models.
type traffic struct {
	models  []string
	results rig.Results
}

func (tr traffic) all() rig.Results { return tr.results }

// of returns the calls of some models.
func (tr traffic) of(models ...string) rig.Results {
	var of rig.Results
	for _, r := range tr.results {
		if slices.Contains(models, modelOf(tr.models, r.Index)) {
			of = append(of, r)
		}
	}
	return of
}

// pass lets time pass.
func pass(d time.Duration) { <-time.After(d) }

// must fails the test for an error of what the test does to its servers.
func (f *fleet) must(err error) {
	f.t.Helper()
	require.NoError(f.t, err)
}

// within returns a context for one thing done to a server.
func (f *fleet) within() context.Context {
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	f.t.Cleanup(cancel)
	return ctx
}

// row adds a line to the table.
func (f *fleet) row(scenario string, calls rig.Results) {
	rows.add(f.t, scenario, f.kind.String(), f.policy.name, calls)
}

// assertStayed asserts that no call of some models failed, and that they stayed at the servers that had them before, in spite of
// all that was done to a.
func (f *fleet) assertStayed(calls traffic, models ...string) {
	f.t.Helper()
	switch {
	case f.policy.exact:
		f.assertHome(calls, 1, models...)
	case f.kind == servers.KServe: // which does not say what it holds, so that each model has a home
		f.assertHome(calls, most, models...)
	default: // both servers are alike to each call
		all := calls.of(models...)
		assert.Empty(f.t, all.Failed(), "%v", all)
		assert.GreaterOrEqual(f.t, all.Share("a"), half, "share of a in the calls of %v", models)
	}
}

// assertHome asserts that no call of some models failed, and that a part of those of each, all of them if that is 1, went to its
// home.
func (f *fleet) assertHome(calls traffic, part float64, models ...string) {
	f.t.Helper()
	for _, m := range models {
		own, home := calls.of(m), "b"
		if slices.Contains(modelsOfA, m) {
			home = "a"
		}
		assert.Empty(f.t, own.Failed(), "%s: %v", m, own)
		assert.GreaterOrEqual(f.t, own.Share(home), part, "share of %s in the calls of %s", home, m)
	}
}

const (
	// most is the part of a model's calls that stay where another model's calls come in addition: some may go to the replica, for
	// the load.
	most = .9
	// half is the part of the calls that either server gets at least of those that are alike to it, for some seconds.
	half = .45
)

package replay

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer/examples/fleet/breakers"
	"github.com/mlbalancer/mlbalancer/examples/fleet/policy"
	"github.com/mlbalancer/mlbalancer/examples/fleet/stats"
	"github.com/mlbalancer/mlbalancer/internal/fleet"
	"github.com/mlbalancer/mlbalancer/internal/oip"
	"github.com/mlbalancer/mlbalancer/resolver"
)

// clients are the channels of a replay.
type clients []*grpc.ClientConn

// dial makes the channels, all alike, and watched if there is a watcher.
//
// They know the servers by addresses that are drawn from the seed, as a cluster deals them to its pods, and their dialer takes these to the
// ports of the simulated servers. So a seed decides what hashing makes of the addresses, and not whatever ports were free.
func dial(f *fleet.Fleet, o Options, addresses []string, watcher *breakers.Watcher) (clients, error) {
	dialer := f.Dialer()
	options := append(f.DialOptions(), grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		i := slices.Index(addresses, address)
		if i < 0 {
			return nil, fmt.Errorf("no server has the address %s", address)
		}
		return dialer(ctx, f.Servers[i].Addr())
	}))
	options = append(options, grpc.WithConnectParams(connectParams(o.Fleet.Scale)))
	options = append(options, o.Policy.DialOptions(o.Fleet.Scale)...)
	target := resolver.StaticScheme + ":///" + strings.Join(addresses, ",")
	var all clients
	for range o.Clients {
		dialOptions, made := options, func(*grpc.ClientConn) {}
		if watcher != nil {
			var watch grpc.DialOption
			watch, made = watcher.Dial()
			dialOptions = append(slices.Clip(options), watch)
		}
		cc, err := grpc.NewClient(target, dialOptions...)
		if err != nil {
			all.close()
			return nil, fmt.Errorf("policy %s: %w", o.Policy.Name, err)
		}
		made(cc)
		cc.Connect()
		all = append(all, cc)
	}
	return all, nil
}

// connectParams returns gRPC's default times between attempts to connect, as model time.
func connectParams(scale float64) grpc.ConnectParams {
	p := grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: time.Duration(float64(20*time.Second) * scale)}
	p.Backoff.BaseDelay = time.Duration(float64(p.Backoff.BaseDelay) * scale)
	p.Backoff.MaxDelay = time.Duration(float64(p.Backoff.MaxDelay) * scale)
	return p
}

func (c clients) close() {
	for _, cc := range c {
		cc.Close()
	}
}

// addressesFor returns n distinct addresses.
func addressesFor(seed uint64, n int) []string {
	rnd := rand.New(rand.NewPCG(seed, 0x6164647265737365))
	addresses := make([]string, 0, n)
	for len(addresses) < n {
		a := fmt.Sprintf("10.%d.%d.%d:8001", rnd.IntN(256), rnd.IntN(256), 1+rnd.IntN(254))
		if !slices.Contains(addresses, a) {
			addresses = append(addresses, a)
		}
	}
	return addresses
}

// send makes the i-th call of the schedule and notes what came of it.
func (r *run) send(ctx context.Context, i int) {
	call := &r.Schedule.Calls[i]
	model := r.Schedule.Models[call.Model]
	due := r.clock.wall(call.At)
	ctx, cancel := context.WithDeadline(ctx, due.Add(r.clock.span(r.Deadline)))
	defer cancel()
	if r.Policy.Header {
		ctx = metadata.AppendToOutgoingContext(ctx, policy.ModelHeader, model)
	}
	req := fleet.NewRequest(model, call.Work)
	sample := stats.Sample{At: call.At, Late: r.clock.model(time.Now()) - call.At}
	_, err := oip.NewClient(r.clients[call.Client]).Infer(ctx, req)
	// An answer that comes as the caller gives up may be seen a moment later.
	sample.Latency = min(r.clock.model(time.Now())-call.At, r.Deadline)
	if err != nil {
		sample.Latency = r.Deadline
		sample.Code, sample.Text = status.Code(err).String(), status.Convert(err).Message()
	}
	r.samples[i] = sample
}

// Package policy lists the load-balancing policies that a replay compares, and how a client selects each.
package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	_ "google.golang.org/grpc/balancer/leastrequest"       // least_request_experimental
	_ "google.golang.org/grpc/balancer/ringhash"           // ring_hash_experimental
	_ "google.golang.org/grpc/balancer/weightedroundrobin" // weighted_round_robin

	"github.com/mlbalancer/mlbalancer"
	"github.com/mlbalancer/mlbalancer/balancer"
	"github.com/mlbalancer/mlbalancer/breaker"
)

// ModelHeader is the metadata key that carries the model's name to policies that cannot read it from the message.
const ModelHeader = "x-model-id"

// Policy is one way to choose a server for a call.
type Policy struct {
	// Name is what reports call it, in the words of gRPC's service config without "_experimental".
	Name string
	// Header says whether calls carry ModelHeader.
	Header bool
	// DialOptions select the policy. scale is how much wall-clock time a unit of model time takes: policies with timers of
	// their own get them shortened by it.
	DialOptions func(scale float64) []grpc.DialOption
	// Breakers says that the policy has circuit breakers which balancer.Snapshot shows.
	Breakers bool
	// LoadReports says that the policy lives off the utilization and the calls per second that servers report with each reply.
	LoadReports bool
}

// all are the policies in the order of reports. Every one that comes with gRPC gets the model in a header, though only
// ring_hash reads it; model_aware finds it in the message.
var all = []Policy{
	builtIn("round_robin", func(float64) string {
		return `{"round_robin":{}}`
	}),
	builtIn("ring_hash", func(float64) string {
		// As many points as gRPC allows by default: the more, the more even the shares of the servers.
		return fmt.Sprintf(`{"ring_hash_experimental":{"minRingSize":4096,"maxRingSize":4096,"requestHashHeader":%q}}`, ModelHeader)
	}),
	builtIn("least_request", func(float64) string {
		return `{"least_request_experimental":{"choiceCount":2}}`
	}),
	withLoadReports(builtIn("weighted_round_robin", func(scale float64) string {
		// The documented defaults in model time: ignore a new server's reports for 10 s, forget them after 180 s, new weights every
		// second. gRPC raises an update period below 100 ms to that.
		return fmt.Sprintf(`{"weighted_round_robin":{"blackoutPeriod":%q,"weightExpirationPeriod":%q,"weightUpdatePeriod":%q}}`,
			seconds(10*time.Second, scale), seconds(180*time.Second, scale), seconds(time.Second, scale))
	})),
	modelAware(),
}

func modelAware(options ...mlbalancer.Option) Policy {
	return Policy{Name: "model_aware", Breakers: true, DialOptions: func(scale float64) []grpc.DialOption {
		// All times are the defaults in model time, as far as they may be that short.
		b := balancer.DefaultBreaker()
		b.Window = max(shorter(b.Window, scale), breaker.Duration(100*time.Millisecond))
		b.OpenFor = max(shorter(b.OpenFor, scale), breaker.Duration(time.Millisecond))
		b.MaxOpenFor = max(shorter(b.MaxOpenFor, scale), b.OpenFor)
		h := balancer.DefaultHealth()
		h.Interval = max(shorter(h.Interval, scale), breaker.Duration(10*time.Millisecond))
		h.StaleAfter = shorter(h.StaleAfter, scale)
		h.MinDwell = shorter(h.MinDwell, scale)
		s := balancer.DefaultSlowStart()
		s.Window = shorter(s.Window, scale)
		config := &balancer.Config{Breaker: b, Health: h, SlowStart: s}
		return mlbalancer.DialOptions(append(options, mlbalancer.WithConfig(config))...)
	}}
}

func shorter(d breaker.Duration, scale float64) breaker.Duration {
	return breaker.Duration(float64(d) * scale)
}

// WithoutRetry returns the policy without retries of failed calls. The policies that come with gRPC have none anyway.
func (p Policy) WithoutRetry() Policy {
	if p.Breakers {
		return modelAware(mlbalancer.WithoutRetry())
	}
	return p
}

func builtIn(name string, config func(scale float64) string) Policy {
	return Policy{Name: name, Header: true, DialOptions: func(scale float64) []grpc.DialOption {
		return []grpc.DialOption{grpc.WithDefaultServiceConfig(fmt.Sprintf(`{"loadBalancingConfig":[%s]}`, config(scale)))}
	}}
}

func withLoadReports(p Policy) Policy {
	p.LoadReports = true
	return p
}

// seconds returns a duration of model time as the service config writes one of wall-clock time.
func seconds(d time.Duration, scale float64) string {
	return fmt.Sprintf("%.6fs", d.Seconds()*scale)
}

// Names returns the names of all policies.
func Names() []string {
	names := make([]string, len(all))
	for i, p := range all {
		names[i] = p.Name
	}
	return names
}

// Select returns the policies of a comma-separated list of names, in its order.
func Select(list string) ([]Policy, error) {
	var selected []Policy
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		named := func(p Policy) bool { return p.Name == name }
		at := slices.IndexFunc(all, named)
		if at < 0 {
			return nil, fmt.Errorf("policy is %q, want one of %s", name, strings.Join(Names(), ", "))
		}
		if slices.ContainsFunc(selected, named) {
			return nil, fmt.Errorf("policy is %q again, want each once", name)
		}
		selected = append(selected, all[at])
	}
	return selected, nil
}

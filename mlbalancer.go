package mlbalancer

import (
	"strings"

	"google.golang.org/grpc"

	"github.com/mlbalancer/mlbalancer/balancer"
	_ "github.com/mlbalancer/mlbalancer/resolver" // registers mlb-static
	"github.com/mlbalancer/mlbalancer/retry"
)

// Option is a choice for DialOptions and StreamClientInterceptor.
type Option func(*options)

type options struct {
	config  *balancer.Config
	retry   []retry.Option
	noRetry bool
	probe   map[string]string
}

func newOptions(opts []Option) *options {
	o := &options{}
	for _, opt := range opts {
		opt(o)
	}
	if o.config == nil {
		o.config = &balancer.Config{}
	}
	return o
}

// WithConfig sets the policy's config. Nil means all defaults, as if the option were not there. A config with a wrong value makes
// grpc.NewClient return an error that names it.
func WithConfig(c *balancer.Config) Option { return func(o *options) { o.config = c } }

// WithRetry sets options of the excluding retry, such as its budget.
func WithRetry(opts ...retry.Option) Option {
	return func(o *options) { o.retry, o.noRetry = append(o.retry, opts...), false }
}

// WithoutRetry leaves retries to gRPC, as the service config has them: each of its attempts goes to a server that none before it went to,
// where there is one.
func WithoutRetry() Option { return func(o *options) { o.noRetry = true } }

// WithProbeMetadata sends metadata along with the policy's own questions to servers (health checks, statistics, report streams), and with no
// other call: a token, or the key of a restricted protocol such as triton-grpc-protocol-<key>. The channel's own credentials go along in
// any case. Several of them add up; keys are lower-cased.
func WithProbeMetadata(md map[string]string) Option {
	return func(o *options) {
		if o.probe == nil {
			o.probe = map[string]string{}
		}
		for k, v := range md {
			o.probe[strings.ToLower(k)] = v
		}
	}
}

// DialOptions returns the options that make a channel model-aware. They are exactly these:
//
//   - grpc.WithDefaultServiceConfig selects the policy model_aware, with all defaults or with the config of WithConfig.
//     A service config that comes with the resolver's results replaces this one as a whole: name model_aware there too.
//     Of several grpc.WithDefaultServiceConfig options the last one counts. To set timeouts or retries of methods as
//     well, write the whole service config yourself, with the policy's part as [balancer.Config.ServiceConfig] prints
//     it, and pass it after these options.
//   - grpc.WithChainUnaryInterceptor adds UnaryClientInterceptor, which also keeps sequences on their servers, and, within it, the
//     excluding retry of package retry to the chain.
//   - grpc.WithDisableRetry switches gRPC's own retries off: two of them would multiply attempts. WithoutRetry leaves gRPC's
//     alone and adds none of ours.
//   - grpc.WithChainStreamInterceptor adds StreamClientInterceptor to the chain.
//   - WithProbeMetadata adds one grpc.WithPerRPCCredentials, which gives its metadata to probes and nothing to other calls.
//
// Pass them last. Interceptors run in the order of the options that add them, the one of grpc.WithUnaryInterceptor or
// grpc.WithStreamInterceptor before all of those, so passed last ours is the innermost: whatever the application's own
// interceptors do to metadata and messages is done when a call is placed, and each attempt that one of them makes is a
// call of its own. Interceptors that are added after ours run within it. Their attempts, one after another, are
// attempts of one call and avoid the servers of earlier ones; an interceptor that runs a call several times at once
// must not stand there.
//
// Nothing else is changed.
func DialOptions(opts ...Option) []grpc.DialOption {
	o := newOptions(opts)
	dial := []grpc.DialOption{
		grpc.WithDefaultServiceConfig(o.config.ServiceConfig()),
		grpc.WithChainStreamInterceptor(streamInterceptor(o)),
	}
	if o.probe != nil {
		dial = append(dial, grpc.WithPerRPCCredentials(probeMetadata(o.probe)))
	}
	if o.noRetry {
		return append(dial, grpc.WithChainUnaryInterceptor(UnaryClientInterceptor()))
	}
	return append(dial,
		grpc.WithChainUnaryInterceptor(recording(retry.UnaryClientInterceptor(o.retry...))),
		grpc.WithDisableRetry())
}

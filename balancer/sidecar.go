package balancer

import (
	"cmp"
	"context"
	"net"
	"strconv"

	"google.golang.org/grpc"
	gbalancer "google.golang.org/grpc/balancer"
	gresolver "google.golang.org/grpc/resolver"

	"github.com/mlbalancer/mlbalancer/health/monitor"
)

// gpuStats is the source that may be asked on another port.
const gpuStats = "gpustats"

// sidecars connects to what stands beside servers and speaks for them, as the channel connects to the servers: with its transport credentials, dialer
// and authority. Per-call credentials of the channel are not to be had here.
type sidecars struct {
	options []grpc.DialOption
	name    string // of the server, for TLS, where an address has none of its own
}

func newSidecars(opts gbalancer.BuildOptions) sidecars {
	s := sidecars{name: opts.Authority, options: []grpc.DialOption{
		grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(), grpc.WithIdleTimeout(0),
	}}
	switch {
	case opts.CredsBundle != nil:
		s.options = append(s.options, grpc.WithCredentialsBundle(opts.CredsBundle))
	case opts.DialCreds != nil:
		s.options = append(s.options, grpc.WithTransportCredentials(opts.DialCreds))
	}
	if opts.Dialer != nil {
		s.options = append(s.options, grpc.WithContextDialer(opts.Dialer))
	}
	return s
}

// run asks what stands beside the server at an address, until ctx is done. It is connected to for as long as the server is.
func (s *sidecars) run(ctx context.Context, server gresolver.Address, port int, sources []int, o *monitor.Options, sink monitor.Sink) {
	host, _, err := net.SplitHostPort(server.Addr)
	if err != nil { // an address of some other kind: there is no port beside it
		for _, i := range sources {
			sink.Silent(i)
		}
		return
	}
	options := append(s.options[:len(s.options):len(s.options)], grpc.WithAuthority(cmp.Or(server.ServerName, s.name)))
	cc, err := grpc.NewClient("passthrough:///"+net.JoinHostPort(host, strconv.Itoa(port)), options...)
	if err != nil {
		logger.Warningf("%s of %s is not asked: %v", gpuStats, server.Addr, err)
		for _, i := range sources {
			sink.Silent(i)
		}
		return
	}
	defer func() { _ = cc.Close() }()
	monitor.Run(ctx, cc, sources, o, sink)
}

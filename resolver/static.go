package resolver

import (
	"net/netip"

	gresolver "google.golang.org/grpc/resolver"
)

// StaticScheme is the scheme of targets that list their endpoints, separated by commas, each an address and the facts that are
// known of it:
//
//	mlb-static:///a:8001;weight=2;name=x,b:8001,[::1]:8001
//
// weight is the endpoint's capacity relative to one of weight 1: a number from 0, which gets no calls; 1 if left out. name is its
// identity; without one it is the address. Neither an address nor a name may occur twice. What stands between separators may be
// percent-encoded; [StaticTarget] writes a target for any list.
//
// An address is host:port, where the host is a name, an IPv4 address or an IPv6 address in brackets. With a dialer of
// the application's own (grpc.WithContextDialer) the port may be anything or missing, since that dialer alone knows
// what the address means. The resolver looks no name up; without such a dialer the connection does, when it is made.
//
// Each server is known by its own address: TLS verifies its host, and calls to it carry it as their :authority. A name
// that the application sets overrides that, as ever: grpc.WithAuthority, or the ServerName of its tls.Config. The
// authority of the channel as a whole is the first address.
//
// A target that cannot be read makes every call on its channel fail, with an error that says what is wrong with it.
const StaticScheme = "mlb-static"

func init() { gresolver.Register(staticBuilder{}) }

// staticBuilder implements gresolver.Builder and gresolver.AuthorityOverrider. It keeps nothing, so that a channel can come back
// from idle mode as often as it likes.
type staticBuilder struct{}

func (staticBuilder) Scheme() string { return StaticScheme }

// Build hands the channel the one state that it will ever get.
func (staticBuilder) Build(
	target gresolver.Target, cc gresolver.ClientConn, opts gresolver.BuildOptions,
) (gresolver.Resolver, error) {
	eps, err := parseStatic(target.URL, opts.Dialer != nil)
	if err != nil {
		return nil, err
	}
	state := gresolver.State{Endpoints: eps}
	//lint:ignore SA1019 the field is deprecated as a way to set a name; here it is read to see whether one was set
	oneName := opts.DialCreds != nil && opts.DialCreds.Info().ServerName != ""
	for i := range eps {
		if addr := &eps[i].Addresses[0]; !oneName { // an address's own name would override that of the credentials
			addr.ServerName = authority(addr.Addr)
		}
		state.Addresses = append(state.Addresses, eps[i].Addresses...) // for policies that know no endpoints
	}
	// An error asks for another resolution, which could only give the same list.
	_ = cc.UpdateState(state)
	return staticResolver{}, nil
}

// OverrideAuthority returns the first address: the endpoint of the target as a whole is a list, which no server would know.
func (staticBuilder) OverrideAuthority(target gresolver.Target) string {
	eps, err := parseStatic(target.URL, true)
	if err != nil {
		return "" // Build returns the error
	}
	return authority(eps[0].Addresses[0].Addr)
}

// staticResolver implements gresolver.Resolver for a list that never changes.
type staticResolver struct{}

func (staticResolver) ResolveNow(gresolver.ResolveNowOptions) {}
func (staticResolver) Close()                                 {}

// authority returns the name of an address in TLS and HTTP, which know no zones of IPv6 addresses.
func authority(addr string) string {
	if ap, err := netip.ParseAddrPort(addr); err == nil {
		return netip.AddrPortFrom(ap.Addr().WithZone(""), ap.Port()).String()
	}
	return addr
}

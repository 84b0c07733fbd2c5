package resolver_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	ghealth "google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	gresolver "google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer/internal/memconn"
	_ "github.com/mlbalancer/mlbalancer/resolver"
)

// fleet is a set of in-memory servers by address. Its dialer is all that knows them, so whatever looks a name up fails.
type fleet struct {
	listeners map[string]*memconn.Listener
	seen      chan seen
}

// seen is a call as a server saw it.
type seen struct{ server, authority string }

func newFleet() *fleet {
	return &fleet{listeners: map[string]*memconn.Listener{}, seen: make(chan seen, 100)}
}

// serve starts a server that answers health checks at addr.
func (f *fleet) serve(t *testing.T, addr string, opts ...grpc.ServerOption) {
	note := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		f.seen <- seen{addr, md.Get(":authority")[0]}
		return handler(ctx, req)
	}
	s := grpc.NewServer(append(opts, grpc.UnaryInterceptor(note))...)
	healthpb.RegisterHealthServer(s, ghealth.NewServer())
	lis := memconn.Listen(1 << 16)
	f.listeners[addr] = lis
	done := make(chan error, 1)
	go func() { done <- s.Serve(lis) }()
	t.Cleanup(func() { s.Stop(); <-done })
}

func (f *fleet) dial(ctx context.Context, addr string) (net.Conn, error) {
	if lis, ok := f.listeners[addr]; ok {
		return lis.DialContext(ctx)
	}
	return nil, fmt.Errorf("nothing at %q", addr)
}

// noDNS stands in for the dns scheme and fails the test when a channel asks it for anything.
type noDNS struct{ t *testing.T }

func (noDNS) Scheme() string { return "dns" }
func (n noDNS) Build(target gresolver.Target, _ gresolver.ClientConn, _ gresolver.BuildOptions) (gresolver.Resolver, error) {
	n.t.Errorf("dns was asked for %s", target.String())
	return nil, fmt.Errorf("no dns here")
}

const roundRobin = `{"loadBalancingConfig": [{"round_robin": {}}]}`

// client opens a channel to target over the fleet's dialer, with gRPC's own round_robin.
func (f *fleet) client(t *testing.T, target string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	cc, err := grpc.NewClient(target, append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(f.dial),
		grpc.WithDefaultServiceConfig(roundRobin), grpc.WithResolvers(noDNS{t}),
	}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { cc.Close() })
	return cc
}

func call(t *testing.T, cc *grpc.ClientConn, opts ...grpc.CallOption) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err := healthpb.NewHealthClient(cc).Check(ctx, &healthpb.HealthCheckRequest{}, opts...)
	return err
}

// callUntil calls until n different servers have answered, and returns the authority that each of them saw.
func (f *fleet) callUntil(t *testing.T, cc *grpc.ClientConn, n int) map[string]string {
	t.Helper()
	authorities := map[string]string{}
	for deadline := time.Now().Add(10 * time.Second); len(authorities) < n; {
		require.True(t, time.Now().Before(deadline), "only %v answered", authorities)
		require.NoError(t, call(t, cc))
		s := <-f.seen
		authorities[s.server] = s.authority
	}
	return authorities
}

// RSLV-09: names that mean something to the dialer alone.
func TestStaticOverCustomDialer(t *testing.T) {
	f := newFleet()
	for _, addr := range []string{"bufnet-1", "bufnet-2:x", "bufnet-3:8001"} {
		f.serve(t, addr)
	}
	cc := f.client(t, "mlb-static:///bufnet-1,bufnet-2:x,bufnet-3:8001")
	assert.Equal(t, map[string]string{"bufnet-1": "bufnet-1", "bufnet-2:x": "bufnet-2:x", "bufnet-3:8001": "bufnet-3:8001"},
		f.callUntil(t, cc, 3), "each server is called by its own name")
}

func TestStaticComesBackFromIdle(t *testing.T) {
	f := newFleet()
	f.serve(t, "a:1")
	f.serve(t, "b:1")
	cc := f.client(t, "mlb-static:///a:1,b:1", grpc.WithIdleTimeout(50*time.Millisecond))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for range 3 {
		f.callUntil(t, cc, 2)
		for s := cc.GetState(); s != connectivity.Idle; s = cc.GetState() {
			require.True(t, cc.WaitForStateChange(ctx, s), "still %v", s)
		}
	}
}

// gRPC's own dialer cannot do without a port.
func TestStaticWithoutDialer(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := grpc.NewServer()
	healthpb.RegisterHealthServer(s, ghealth.NewServer())
	done := make(chan error, 1)
	go func() { done <- s.Serve(lis) }()
	t.Cleanup(func() { s.Stop(); <-done })

	dial := func(target string) *grpc.ClientConn {
		cc, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithResolvers(noDNS{t}))
		require.NoError(t, err)
		t.Cleanup(func() { cc.Close() })
		return cc
	}
	require.NoError(t, call(t, dial("mlb-static:///"+lis.Addr().String())))

	err = call(t, dial("mlb-static:///bufnet-1"))
	assert.Equal(t, codes.Unavailable, status.Code(err))
	assert.ErrorContains(t, err, `mlb-static: endpoint 1 ("bufnet-1"): address is "bufnet-1", want host:port`)
}

func TestStaticBadTargetFailsCalls(t *testing.T) {
	f := newFleet()
	for target, want := range map[string]string{
		"mlb-static:///a:1,b:1;wieght=2": `endpoint 2 ("b:1;wieght=2"): unknown fact "wieght", want weight or name`,
		"mlb-static:///":                 `endpoint 1 (""): address is ""`,
		"mlb-static://a:1":               `three slashes`,
	} {
		err := call(t, f.client(t, target))
		assert.Equal(t, codes.Unavailable, status.Code(err), target)
		assert.ErrorContains(t, err, want, target)
	}
}

// authority of certificates: signs one for any names.
type certAuthority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newCertAuthority(t *testing.T) *certAuthority {
	ca := &certAuthority{}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	var err error
	ca.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, template, template, &ca.key.PublicKey, ca.key)
	require.NoError(t, err)
	ca.cert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	return ca
}

// server returns credentials of a server that proves to be any of names.
func (ca *certAuthority) server(t *testing.T, names ...string) grpc.ServerOption {
	template := &x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: names, NotAfter: time.Now().Add(time.Hour)}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, &key.PublicKey, ca.key)
	require.NoError(t, err)
	return grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}))
}

// client returns credentials that trust this authority; serverName may be empty.
func (ca *certAuthority) client(serverName string) grpc.DialOption {
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	return grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: roots, ServerName: serverName}))
}

// Each server has to prove its own name, not that of the first one.
func TestStaticTLSVerifiesEachHost(t *testing.T) {
	ca, f := newCertAuthority(t), newFleet()
	f.serve(t, "a.example:443", ca.server(t, "a.example"))
	f.serve(t, "b.example:443", ca.server(t, "b.example"))
	cc := f.client(t, "mlb-static:///a.example:443,b.example:443", ca.client(""))
	assert.Equal(t, map[string]string{"a.example:443": "a.example:443", "b.example:443": "b.example:443"}, f.callUntil(t, cc, 2))
}

func TestStaticTLSRefusesAnotherHost(t *testing.T) {
	ca, f := newCertAuthority(t), newFleet()
	f.serve(t, "a.example:443", ca.server(t, "b.example"))
	err := call(t, f.client(t, "mlb-static:///a.example:443", ca.client("")))
	assert.Equal(t, codes.Unavailable, status.Code(err))
	assert.ErrorContains(t, err, "certificate is valid for b.example, not a.example")
}

// A name that the application sets for all servers overrides the hosts.
func TestStaticTLSNameOfTheApplication(t *testing.T) {
	ca, f := newCertAuthority(t), newFleet()
	f.serve(t, "10.0.0.1:443", ca.server(t, "fleet.example"))
	f.serve(t, "10.0.0.2:443", ca.server(t, "fleet.example"))
	const target = "mlb-static:///10.0.0.1:443,10.0.0.2:443"
	for name, opts := range map[string][]grpc.DialOption{
		"ServerName of the tls.Config": {ca.client("fleet.example")},
		"WithAuthority":                {ca.client(""), grpc.WithAuthority("fleet.example")},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, map[string]string{"10.0.0.1:443": "fleet.example", "10.0.0.2:443": "fleet.example"},
				f.callUntil(t, f.client(t, target, opts...), 2))
		})
	}
}

// The channel's own authority, which an application's interceptors and credentials see.
func TestStaticChannelAuthority(t *testing.T) {
	builder := gresolver.Get("mlb-static").(gresolver.AuthorityOverrider)
	for target, want := range map[string]string{
		"mlb-static:///a.example:443;weight=2,b.example:443": "a.example:443",
		"mlb-static:///bufnet-1,b:1":                         "bufnet-1",
		"mlb-static:///[fe80::1%25eth0]:8001":                "[fe80::1]:8001",
		"mlb-static:///;":                                    "",
	} {
		assert.Equal(t, want, builder.OverrideAuthority(parseTarget(t, target)), target)
	}
}

// An ephemeral peer address is proof that a connection was made over the fleet's dialer and not over a network.
func TestStaticUsesOnlyTheDialer(t *testing.T) {
	f := newFleet()
	f.serve(t, "localhost:1")
	var p peer.Peer
	require.NoError(t, call(t, f.client(t, "mlb-static:///localhost:1"), grpc.Peer(&p)))
	assert.Equal(t, "memconn", p.Addr.Network())
}

func parseTarget(t *testing.T, target string) gresolver.Target {
	u, err := url.Parse(target)
	require.NoError(t, err)
	return gresolver.Target{URL: *u}
}

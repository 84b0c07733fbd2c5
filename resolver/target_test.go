package resolver

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	gresolver "google.golang.org/grpc/resolver"
)

// parsed reads a target and prints what was found in it, endpoint by endpoint.
func parsed(t testing.TB, target string, ownDialer bool) (string, error) {
	u, err := url.Parse(target)
	require.NoError(t, err, target)
	eps, err := parseStatic(*u, ownDialer)
	var out []string
	for _, ep := range eps {
		s := ep.Addresses[0].Addr
		if w, ok := Weight(ep); ok {
			s += fmt.Sprintf(" weight=%v", w)
		}
		if name := Name(ep); name != "" {
			s += fmt.Sprintf(" name=%q", name)
		}
		out = append(out, s)
	}
	return strings.Join(out, ", "), err
}

func TestStaticTargetForms(t *testing.T) {
	for target, want := range map[string]string{
		"mlb-static:///a:8001":                                    "a:8001",
		"mlb-static:///a:8001;weight=2;name=x,b:8001":             `a:8001 weight=2 name="x", b:8001`,
		"mlb-static:///a:8001;name=x;weight=2,b:8001":             `a:8001 weight=2 name="x", b:8001`,
		"mlb-static:/a:8001,b:8001":                               "a:8001, b:8001",
		"mlb-static:a:8001,b:8001;name=x%2Cy":                     `a:8001, b:8001 name="x,y"`,
		"MLB-Static:///a:8001":                                    "a:8001",
		"mlb-static:///[::1]:8001,10.0.0.1:8001,gpu_1.x-y:1":      "[::1]:8001, 10.0.0.1:8001, gpu_1.x-y:1",
		"mlb-static:///%5B::1%5D:8001":                            "[::1]:8001",
		"mlb-static:///[fe80::1%25eth0]:8001":                     "[fe80::1%eth0]:8001",
		"mlb-static:///a:1;weight=0,b:1;weight=.5,c:1;weight=1e3": "a:1 weight=0, b:1 weight=0.5, c:1 weight=1000",
		"mlb-static:///a:1;name=x%2Cy%3Bz=1 %25 %C3%A9":           `a:1 name="x,y;z=1 % é"`,
		"mlb-static:///a:1;name=a/b":                              `a:1 name="a/b"`,
	} {
		got, err := parsed(t, target, false)
		require.NoError(t, err, target)
		assert.Equal(t, want, got, target)
	}
}

func TestStaticTargetRejects(t *testing.T) {
	const list = "mlb-static: endpoint "
	for target, want := range map[string]string{
		"mlb-static:///":                      list + `1 (""): address is "", want host:port`,
		"mlb-static:":                         list + `1 (""): address is ""`,
		"mlb-static:///a:1,":                  list + `2 (""): address is ""`,
		"mlb-static:///a:1,,b:1":              list + `2 (""): address is ""`,
		"mlb-static:///a:1,;weight=2":         list + `2 (";weight=2"): address is ""`,
		"mlb-static:///a:1,b":                 list + `2 ("b"): address is "b", want host:port, with an IPv6 address in brackets`,
		"mlb-static:///:8001":                 list + `1 (":8001"): host is "", want letters, digits`,
		"mlb-static:///a:":                    list + `1 ("a:"): port is "", want a number from 1 to 65535`,
		"mlb-static:///a:0":                   `port is "0"`,
		"mlb-static:///a:65536":               `port is "65536"`,
		"mlb-static:///a:http":                `port is "http"`,
		"mlb-static:///::1":                   `address is "::1", want host:port, with an IPv6 address in brackets`,
		"mlb-static:///[::1]":                 `address is "[::1]", want host:port`,
		"mlb-static:///[a]:1":                 `address is "[a]:1", want host:port`,
		"mlb-static:///[10.0.0.1]:1":          `address is "[10.0.0.1]:1", want host:port`,
		"mlb-static:///a b:1":                 `host is "a b"`,
		"mlb-static:///unix:/tmp/s":           `port is "/tmp/s"`,
		"mlb-static:///a:1;":                  list + `1 ("a:1;"): fact is "", want key=value`,
		"mlb-static:///a:1;weight":            `fact is "weight", want key=value`,
		"mlb-static:///a:1;wieght=2":          list + `1 ("a:1;wieght=2"): unknown fact "wieght", want weight or name`,
		"mlb-static:///a:1;Weight=2":          `unknown fact "Weight"`,
		"mlb-static:///a:1;weight=":           `weight is "", want a number from 0`,
		"mlb-static:///a:1;weight=-1":         `weight is "-1", want a number from 0`,
		"mlb-static:///a:1;weight=NaN":        `weight is "NaN"`,
		"mlb-static:///a:1;weight=Inf":        `weight is "Inf"`,
		"mlb-static:///a:1;weight=1e999":      `weight is "1e999"`,
		"mlb-static:///a:1;weight=two":        `weight is "two"`,
		"mlb-static:///a:1;weight=1;weight=2": `weight is given twice, want it only once`,
		"mlb-static:///a:1;name=":             `name is "", want a text that is not empty`,
		"mlb-static:///a:1;name=%FF":          `name is "\xff"`,
		"mlb-static:///a:1,b:1,a:1":           list + `3 ("a:1"): address "a:1" is that of endpoint 1, want each only once`,
		"mlb-static:///a:1;name=x,b:1;name=x": list + `2 ("b:1;name=x"): name "x" is that of endpoint 1, want each only once`,
		"mlb-static://a:1,b:1":                `target is "mlb-static://a:1,b:1", want mlb-static:///host:port,host:port (three slashes, no ? and no #)`,
		"mlb-static://a:1/b:1":                `three slashes`,
		"mlb-static:///a:1?weight=2":          `no ? and no #`,
		"mlb-static:///a:1#x":                 `no ? and no #`,
	} {
		_, err := parsed(t, target, false)
		assert.ErrorContains(t, err, want, target)
	}
}

// With a dialer of its own, the application may call its servers what it likes.
func TestStaticTargetOwnDialer(t *testing.T) {
	got, err := parsed(t, "mlb-static:///bufnet-1;weight=2,bufnet-2,c:grpc,d:0001", true)
	require.NoError(t, err)
	assert.Equal(t, "bufnet-1 weight=2, bufnet-2, c:grpc, d:0001", got)
	for target, want := range map[string]string{
		"mlb-static:///":      `address is ""`,
		"mlb-static:///::1":   `address is "::1"`,
		"mlb-static:///a b":   `address is "a b"`,
		"mlb-static:///a:b c": `port is "b c"`,
		"mlb-static:///x,x":   `address "x" is that of endpoint 1`,
	} {
		_, err := parsed(t, target, true)
		assert.ErrorContains(t, err, want, target)
	}
}

func TestStaticTarget(t *testing.T) {
	target, err := StaticTarget(
		WithName(WithWeight(at("a:8001"), 2), "x,y;z=1/%é ?#"),
		at("[fe80::1%eth0]:8001"),
		WithWeightUnit(WithWeight(at("10.0.0.1:8001"), 1<<30), 1<<31),
		at("bufnet-1"),
	)
	require.NoError(t, err)
	got, err := parsed(t, target, true)
	require.NoError(t, err, target)
	assert.Equal(t, `a:8001 weight=2 name="x,y;z=1/%é ?#", [fe80::1%eth0]:8001, 10.0.0.1:8001 weight=0.5, bufnet-1`, got)
}

func TestStaticTargetOfBadEndpoints(t *testing.T) {
	two := at("a:1")
	two.Addresses = append(two.Addresses, gresolver.Address{Addr: "b:1"})
	for want, eps := range map[string][]gresolver.Endpoint{
		`endpoint 1 (""): address is ""`:      nil,
		`endpoint 2 has 2 addresses, want 1`:  {at("c:1"), two},
		`endpoint 1 has 0 addresses, want 1`:  {{}},
		`address "a:1" is that of endpoint 1`: {at("a:1"), at("a:1")},
		`name "x" is that of endpoint 1`:      {WithName(at("a:1"), "x"), WithName(at("b:1"), "x")},
		`address is "::1", want host:port`:    {at("::1")},
	} {
		target, err := StaticTarget(eps...)
		assert.ErrorContains(t, err, want)
		assert.Empty(t, target)
	}
}

// Whatever the target, it is read or refused; what is read can be written, and reads as the same.
func FuzzStatic(f *testing.F) {
	for _, path := range []string{"a:8001;weight=2;name=x,b:8001", "[::1]:1,a:2;name=%2C", ";", "a:1;weight=NaN", "%zz", "bufnet"} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		u, err := url.Parse(StaticScheme + ":///" + path)
		if err != nil {
			return
		}
		eps, err := parseStatic(*u, true)
		if err != nil {
			return
		}
		target, err := StaticTarget(eps...)
		require.NoError(t, err)
		first, err := parsed(t, u.String(), true)
		require.NoError(t, err)
		second, err := parsed(t, target, true)
		require.NoError(t, err)
		assert.Equal(t, first, second)
	})
}

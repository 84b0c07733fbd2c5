package resolver

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	gresolver "google.golang.org/grpc/resolver"
)

// StaticTarget returns a target of scheme mlb-static that lists endpoints, each of which has one address and whatever
// WithName and WithWeight gave it. It returns an error for whatever the scheme's resolver would not take; an address
// without a port passes, since the channel may have a dialer of its own.
func StaticTarget(endpoints ...gresolver.Endpoint) (string, error) {
	var b strings.Builder
	b.WriteString(StaticScheme + ":///")
	for i, ep := range endpoints {
		if len(ep.Addresses) != 1 {
			return "", fmt.Errorf("%s: endpoint %d has %d addresses, want 1", StaticScheme, i+1, len(ep.Addresses))
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(url.PathEscape(ep.Addresses[0].Addr))
		if w, ok := Weight(ep); ok {
			b.WriteString(";weight=" + strconv.FormatFloat(w/WeightUnit(ep), 'g', -1, 64))
		}
		if name := Name(ep); name != "" {
			b.WriteString(";name=" + url.PathEscape(name))
		}
	}
	target := b.String()
	u, err := url.Parse(target)
	if err != nil {
		return "", fmt.Errorf("%s: %w", StaticScheme, err)
	}
	if _, err := parseStatic(*u, true); err != nil {
		return "", err
	}
	return target, nil
}

// parseStatic reads the endpoints that a target lists. ownDialer says that the application dials, and knows what an
// address means.
func parseStatic(u url.URL, ownDialer bool) ([]gresolver.Endpoint, error) {
	if u.Host != "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%s: target is %q, want %[1]s:///host:port,host:port (three slashes, no ? and no #)",
			StaticScheme, u.String())
	}
	list := u.RawPath // as it was written, so that an encoded separator separates nothing
	if list == "" {
		list = u.EscapedPath()
	}
	if list == "" {
		list = u.Opaque
	}
	items := strings.Split(strings.TrimPrefix(list, "/"), ",")
	eps := make([]gresolver.Endpoint, len(items))
	addrs, names := map[string]int{}, map[string]int{} // the item that has it
	for i, item := range items {
		ep, err := parseEndpoint(item, ownDialer)
		if err == nil {
			err = errors.Join(once(addrs, "address", ep.Addresses[0].Addr, i+1), once(names, "name", Name(ep), i+1))
		}
		if err != nil {
			return nil, fmt.Errorf("%s: endpoint %d (%q): %w", StaticScheme, i+1, item, err)
		}
		eps[i] = ep
	}
	return eps, nil
}

// once notes that item n has a value, and returns an error if an earlier one has it already.
func once(seen map[string]int, what, value string, n int) error {
	if value == "" {
		return nil
	}
	if first, ok := seen[value]; ok {
		return fmt.Errorf("%s %q is that of endpoint %d, want each only once", what, value, first)
	}
	seen[value] = n
	return nil
}

// parseEndpoint reads "host:port;weight=2;name=x".
func parseEndpoint(item string, ownDialer bool) (gresolver.Endpoint, error) {
	parts := strings.Split(item, ";")
	addr, err := parseAddress(parts[0], ownDialer)
	if err != nil {
		return gresolver.Endpoint{}, err
	}
	ep := gresolver.Endpoint{Addresses: []gresolver.Address{{Addr: addr}}}
	given := map[string]bool{}
	for _, part := range parts[1:] {
		key, encoded, ok := strings.Cut(part, "=")
		value, err := url.PathUnescape(encoded)
		switch {
		case !ok || err != nil:
			return ep, fmt.Errorf("fact is %q, want key=value", part)
		case given[key]:
			return ep, fmt.Errorf("%s is given twice, want it only once", key)
		}
		given[key] = true
		switch key {
		case "weight":
			w, err := strconv.ParseFloat(value, 64)
			if err != nil || !(w >= 0) || math.IsInf(w, 1) {
				return ep, fmt.Errorf("weight is %q, want a number from 0", value)
			}
			ep = WithWeight(ep, w)
		case "name":
			if value == "" || !utf8.ValidString(value) {
				return ep, fmt.Errorf("name is %q, want a text that is not empty", value)
			}
			ep = WithName(ep, value)
		default:
			return ep, fmt.Errorf("unknown fact %q, want weight or name", key)
		}
	}
	return ep, nil
}

// parseAddress reads an address as it stands in a target.
func parseAddress(encoded string, ownDialer bool) (string, error) {
	addr, err := url.PathUnescape(encoded)
	if err != nil {
		return "", fmt.Errorf("address is %q, want host:port with nothing but %%XX after a %%", encoded)
	}
	if ownDialer && isName(addr) {
		return addr, nil
	}
	host, port, err := net.SplitHostPort(addr)
	ip, ipErr := netip.ParseAddr(host)
	bracketed := strings.HasPrefix(addr, "[")
	switch {
	case err != nil || bracketed != (ipErr == nil && ip.Is6()):
		return "", fmt.Errorf("address is %q, want host:port, with an IPv6 address in brackets", addr)
	case !bracketed && !isName(host):
		return "", fmt.Errorf("host is %q, want letters, digits, dots, dashes and underscores, or an IP address", host)
	case ownDialer && isName(port):
		return addr, nil
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", fmt.Errorf("port is %q, want a number from 1 to 65535", port)
	}
	return addr, nil
}

// isName reports whether s can be the name of a host, to the DNS or to a dialer of the application's.
func isName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '-' && r != '_'
	})
}

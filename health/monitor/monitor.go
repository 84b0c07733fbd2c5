// Package monitor runs the sources of health reports over a connection to a server. A source is a package of its own that
// registers itself; the monitor owns its goroutine, decides when it is asked again, and takes its word back when it has none any
// more.
package monitor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/mlbalancer/mlbalancer/health"
)

// MaxSources bounds the number of registered sources.
const MaxSources = health.MaxSources

// Source learns about servers over connections to them. Its methods are called concurrently, for many connections.
type Source interface {
	// Name is the source's name in health.sources.
	Name() string
	// Watch asks one server, over conn, and calls report with each thing it learns, from one goroutine at a time, until ctx is done
	// or the server will not say more; it has no goroutine left when it returns. It reports each message that it gets, whether or
	// not it says anything new, and reads no more once ctx is done, though the stream may still hold thousands: by that Run cuts off
	// servers that talk without end. What it returns decides what happens next:
	//   - a status UNIMPLEMENTED, or nil: this server has nothing to say; it is not asked again on this connection;
	//   - what Denied is true of: it is not for us to know; it is asked again after minutes;
	//   - anything else, such as the end of a stream: it is asked again after a delay that grows while it keeps failing.
	// In each case what was reported last is withdrawn, unless the source is asked again and its last report had an Interval:
	// such reports go stale by themselves.
	Watch(ctx context.Context, conn grpc.ClientConnInterface, o *Options, report func(*health.Report)) error
}

// Options is what a source is told about the channel.
type Options struct {
	// Interval is how often a server is to be asked, or to report at least. It is above 0.
	Interval time.Duration
	// Models returns the models that the channel uses now, in order of use, at most some hundreds; the slice is only read. It is
	// never nil, and may be called at any time.
	Models func() []string
}

var registry []Source

// Register makes a source known. It is to be called from init functions only, and panics if the name is taken or there are too
// many.
func Register(s Source) {
	if Lookup(s.Name()) != nil {
		panic(fmt.Sprintf("monitor: source %q registered twice", s.Name()))
	}
	if len(registry) == MaxSources {
		panic("monitor: too many sources")
	}
	registry = append(registry, s)
	slices.SortFunc(registry, func(a, b Source) int { return strings.Compare(a.Name(), b.Name()) })
}

// Lookup returns the source of a name, or nil.
func Lookup(name string) Source {
	for _, s := range registry {
		if s.Name() == name {
			return s
		}
	}
	return nil
}

// Names returns the names of all sources, sorted. The place of a name is the source's number wherever sources are numbered.
func Names() []string {
	names := make([]string, len(registry))
	for i, s := range registry {
		names[i] = s.Name()
	}
	return names
}

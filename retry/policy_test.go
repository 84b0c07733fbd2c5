package retry

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	gbalancer "google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"

	"github.com/mlbalancer/mlbalancer/internal/outcome"
	"github.com/mlbalancer/mlbalancer/picker"
)

// inOrder is a small policy: a call goes to the first connected address, by name, that it has not been to. The first call waits
// until all addresses are connected.
const inOrder = "in_order"

func init() { gbalancer.Register(base.NewBalancerBuilder(inOrder, &orderBuilder{}, base.Config{})) }

// gate is an attribute that all addresses of a channel share.
type gate struct {
	addresses int
	open      atomic.Bool // all addresses have been connected
}

type orderBuilder struct {
	endpoints sync.Map // by address, *picker.Endpoint
}

func (b *orderBuilder) Build(info base.PickerBuildInfo) gbalancer.Picker {
	p, open := &orderPicker{table: must(outcome.New(nil))}, false
	for sc, of := range info.ReadySCs {
		g := of.Address.Attributes.Value(gate{}).(*gate)
		if len(info.ReadySCs) == g.addresses {
			g.open.Store(true)
		}
		open = g.open.Load()
		e, _ := b.endpoints.LoadOrStore(of.Address.Addr, picker.NewEndpoint(of.Address.Addr))
		p.members = append(p.members, orderMember{of.Address.Addr, sc, e.(*picker.Endpoint)})
	}
	if !open {
		return base.NewErrPicker(gbalancer.ErrNoSubConnAvailable)
	}
	slices.SortFunc(p.members, func(a, b orderMember) int { return strings.Compare(a.addr, b.addr) })
	return p
}

type orderMember struct {
	addr     string
	conn     gbalancer.SubConn
	endpoint *picker.Endpoint
}

type orderPicker struct {
	members []orderMember
	table   *outcome.Table
}

// Pick implements gbalancer.Picker. When every address was tried, it refuses in the way that makes calls that wait for ready wait.
func (p *orderPicker) Pick(info gbalancer.PickInfo) (gbalancer.PickResult, error) {
	call := picker.CallFromContext(info.Ctx)
	for _, m := range p.members {
		if !slices.Contains(call.Tried(), m.endpoint) {
			call.Placed(m.endpoint, picker.Turn)
			return gbalancer.PickResult{SubConn: m.conn, Done: p.done(info.Ctx, call)}, nil
		}
	}
	return gbalancer.PickResult{}, errAllTried
}

var errAllTried = errorString("in_order: every server was tried")

type errorString string

func (e errorString) Error() string { return string(e) }

func (p *orderPicker) done(ctx context.Context, call *picker.Call) func(gbalancer.DoneInfo) {
	return func(info gbalancer.DoneInfo) {
		if !info.BytesSent {
			call.Unplaced()
			return
		}
		end := outcome.End{Err: info.Err, Received: info.BytesReceived}
		call.Ended(p.table.Classify(ctx, end), outcome.Pushback(info.Trailer, info.Err))
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

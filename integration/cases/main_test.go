// Package cases holds one test for each failure that other balancers, breakers and routers are known to have had, named by the
// case's id. All are black boxes: set up through target strings, service configs, dial options and interceptors, judged by what
// servers and callers see and by what balancer.Snapshot reads out. What must hold in every case is the rig's to watch.
package cases

import (
	"context"
	"net"
	"os"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/mlbalancer/mlbalancer/integration/rig"
)

var (
	// logged is what gRPC and its policies have warned of.
	logged *rig.Log
	// lookups counts what was asked of the network's name service; all of it is refused.
	lookups atomic.Int64
)

func TestMain(m *testing.M) {
	logged = rig.CaptureLog()
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		lookups.Add(1)
		return nil, os.ErrPermission
	}}
	goleak.VerifyTestMain(m)
}

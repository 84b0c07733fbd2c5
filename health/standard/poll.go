package standard

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer/health"
	"github.com/mlbalancer/mlbalancer/health/monitor"
)

// minTimeout is the least time that a server has to answer a Check: more than the interval, where that is short.
const minTimeout = time.Second

// poll calls Check once per interval. An error that is no answer says nothing of the server: it ends poll while there has been no
// answer; later it makes the next Check wait longer, and what was said grows stale.
func poll(ctx context.Context, client healthpb.HealthClient, o *monitor.Options, report func(*health.Report)) error {
	var backoff monitor.Backoff
	answered := false
	for {
		began := time.Now()
		state, err := check(ctx, client, max(minTimeout, o.Interval))
		delay := o.Interval - time.Since(began)
		switch {
		case err == nil:
			answered, backoff = true, monitor.Backoff{}
			report(&health.Report{Server: state, Interval: o.Interval})
		case !answered, ctx.Err() != nil, status.Code(err) == codes.Unimplemented, monitor.Denied(err):
			return err
		default:
			delay = max(delay, backoff.Next(0))
		}
		if !monitor.Sleep(ctx, delay) {
			return ctx.Err()
		}
	}
}

// check asks once for the server as a whole.
func check(ctx context.Context, client healthpb.HealthClient, timeout time.Duration) (health.ServerState, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	resp, err := client.Check(ctx, &healthpb.HealthCheckRequest{})
	switch status.Code(err) {
	case codes.OK:
		return server(resp.GetStatus()), nil
	case codes.NotFound: // the server does not know the service ""; Watch would say SERVICE_UNKNOWN
		return health.ServerNotReady, nil
	case codes.Unavailable:
		if leaving(status.Convert(err).Message()) {
			return health.ServerDraining, nil
		}
	}
	return health.ServerUnknown, err
}

// leaving reports whether an error's text is one with which Triton goes away: "Server exiting", "GRPC server is shutting down
// ...", "Server is stopping, ...".
func leaving(text string) bool {
	text = strings.ToLower(text)
	for _, s := range []string{"server exiting", "shutting down", "server is stopping"} {
		if strings.Contains(text, s) {
			return true
		}
	}
	return false
}

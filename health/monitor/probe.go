package monitor

import "context"

type probeKey struct{}

// ProbeContext marks the calls that are made with it as probes: questions of ours, not calls of the application. Credentials that
// are meant for probes alone look at it.
func ProbeContext(ctx context.Context) context.Context {
	return context.WithValue(ctx, probeKey{}, true)
}

// IsProbe reports whether a call made with ctx is a probe.
func IsProbe(ctx context.Context) bool { return ctx.Value(probeKey{}) != nil }

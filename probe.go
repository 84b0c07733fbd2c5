package mlbalancer

import (
	"context"

	"google.golang.org/grpc/credentials"

	"github.com/mlbalancer/mlbalancer/health/monitor"
)

// probeMetadata gives metadata to probes alone.
type probeMetadata map[string]string

var _ credentials.PerRPCCredentials = probeMetadata{}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (m probeMetadata) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	if monitor.IsProbe(ctx) {
		return m, nil
	}
	return nil, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials. Whether a plain-text network is to be trusted with the metadata is the
// caller's decision, as it is for the metadata of calls.
func (probeMetadata) RequireTransportSecurity() bool { return false }

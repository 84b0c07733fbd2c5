package policy

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

func TestSelect(t *testing.T) {
	every, err := Select(strings.Join(Names(), ","))
	require.NoError(t, err)
	require.Len(t, every, len(Names()))
	for i, p := range every {
		assert.Equal(t, Names()[i], p.Name)
	}
	two, err := Select("ring_hash, round_robin")
	require.NoError(t, err)
	assert.Equal(t, "ring_hash", two[0].Name)
	assert.Equal(t, "round_robin", two[1].Name)

	_, err = Select("random")
	assert.EqualError(t, err, `policy is "random", want one of `+strings.Join(Names(), ", "))
	_, err = Select("")
	assert.ErrorContains(t, err, `policy is "", want one of`)
	_, err = Select("ring_hash,ring_hash")
	assert.EqualError(t, err, `policy is "ring_hash" again, want each once`)
}

// TestConfigs lets gRPC read each policy's configuration.
func TestConfigs(t *testing.T) {
	policies := slices.Clone(all)
	for _, p := range all {
		policies = append(policies, p.WithoutRetry())
	}
	for _, p := range policies {
		for _, scale := range []float64{1, 1. / 20, 1. / 1000} {
			options := append(p.DialOptions(scale), grpc.WithTransportCredentials(insecure.NewCredentials()))
			cc, err := grpc.NewClient("passthrough:///server", options...)
			require.NoError(t, err, p.Name)
			require.NoError(t, cc.Close())
		}
	}
}

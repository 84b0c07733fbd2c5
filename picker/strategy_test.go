package picker

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRegistry(t *testing.T) {
	assert.Subset(t, Strategies(), []string{"p2c", "ring", "round_robin"})
	assert.IsIncreasing(t, Strategies())
	assert.Nil(t, Defaults("no such strategy"))
	assert.PanicsWithValue(t, `picker: strategy "ring" registered twice`, func() {
		Register(func() Options { return &RingOptions{} })
	})
	assert.Equal(t, &RingOptions{VirtualNodes: 150, Replicas: 2, LoadFactor: 1.25}, Defaults("ring"))
	assert.Equal(t, &P2COptions{Choices: 2}, Defaults("p2c"))
}

func TestOptionRanges(t *testing.T) {
	for _, c := range []struct {
		options Options
		want    string // the error; empty if there is none
	}{
		{&RingOptions{VirtualNodes: 1, Replicas: 1, LoadFactor: 1.01}, ""},
		{&RingOptions{VirtualNodes: 100_000, Replicas: 16, LoadFactor: 100}, ""},
		{&RingOptions{VirtualNodes: 0, Replicas: 2, LoadFactor: 1.25}, "virtualNodes is 0, want 1 to 100000"},
		{&RingOptions{VirtualNodes: 100_001, Replicas: 2, LoadFactor: 1.25}, "virtualNodes is 100001, want 1 to 100000"},
		{&RingOptions{VirtualNodes: 150, Replicas: 0, LoadFactor: 1.25}, "replicas is 0, want 1 to 16"},
		{&RingOptions{VirtualNodes: 150, Replicas: 17, LoadFactor: 1.25}, "replicas is 17, want 1 to 16"},
		{&RingOptions{VirtualNodes: 150, Replicas: 2, LoadFactor: 1}, "loadFactor is 1, want above 1, up to 100"},
		{&RingOptions{VirtualNodes: 150, Replicas: 2, LoadFactor: 100.5}, "loadFactor is 100.5, want above 1, up to 100"},
		{&P2COptions{Choices: 2}, ""},
		{&P2COptions{Choices: 10}, ""},
		{&P2COptions{Choices: 1}, "choices is 1, want 2 to 10"},
		{&P2COptions{Choices: 11}, "choices is 11, want 2 to 10"},
	} {
		err := c.options.Validate()
		if c.want == "" {
			assert.NoError(t, err)
		} else {
			assert.EqualError(t, err, c.want)
		}
	}
}

func TestFieldError(t *testing.T) {
	err := fmt.Errorf("ring: %w", BadField("replicas", 0, "1 to 16"))
	var field *FieldError
	require.True(t, errors.As(err, &field))
	assert.Equal(t, &FieldError{Field: "replicas", Got: "0", Want: "1 to 16"}, field)
}

func TestReasonNames(t *testing.T) {
	seen := map[string]bool{}
	for r := range NumReasons {
		text, err := r.MarshalText()
		require.NoError(t, err)
		assert.Regexp(t, `^[a-z]+(-[a-z]+)*$`, string(text))
		assert.Equal(t, r.String(), string(text))
		assert.False(t, seen[r.String()], "%s twice", r)
		seen[r.String()] = true
	}
	assert.Equal(t, "less-loaded", LessLoaded.String())
	assert.Equal(t, "reason(200)", Reason(200).String())
}

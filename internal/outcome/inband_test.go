package outcome

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mlbalancer/mlbalancer/picker"
)

func TestInBand(t *testing.T) {
	table := defaultTable(t)
	for text, want := range map[string]picker.Outcome{
		"": picker.ModelFault,
		"Failed to process the request(s) for model instance 'x_0_0', message: boom":                        picker.ModelFault,
		"failed to run the model: the model's data was not found":                                           picker.ModelFault,
		"onnx runtime error 6: Failed to allocate memory for requested buffer of size 1":                    picker.ModelFault,
		"Request for unknown model: 'x' is not found":                                                       picker.Misplaced,
		"Request for unknown model: 'x' has no available versions":                                          picker.Misplaced,
		"Request for unknown model: 'x' version 1 is not at ready state":                                    picker.Misplaced,
		"in ensemble 'e', Request for unknown model: 'x' is not found":                                      picker.Misplaced,
		"'x' version 1 is not at ready state":                                                               picker.Misplaced,
		"Model with requested name is not found":                                                            picker.Misplaced,
		"[request id: <id_unknown>] Exceeds maximum queue size":                                             picker.Overload,
		"Request timeout expired":                                                                           picker.Overload,
		"Server exiting":                                                                                    picker.Draining,
		"Server is stopping, scheduler for model has stopped accepting new inference requests":              picker.Draining,
		"unexpected shape for input 'INPUT0' for model 'x'. Expected [-1,4], got [1,5]":                     picker.CallerFault,
		"inference input 'x' data-type is 'FP32', but model expects 'UINT8'":                                picker.CallerFault,
		"[request id: 7] expected 3 inputs but got 0 inputs for model 'x'":                                  picker.CallerFault,
		"inference request batch-size must be <= 8 for 'x'":                                                 picker.CallerFault,
		"in ensemble 'e', input byte size mismatch for input 'i' for model 'x'. Expected 4, got 0":          picker.CallerFault,
		"inference request for sequence 4 to model 'x' must specify the START flag on the first request of": picker.CallerFault,
		"stream terminated by RST_STREAM with error code: INTERNAL_ERROR":                                   picker.ModelFault, // of a server behind the server
		"CallWithoutModel: grpc: the client connection is closing":                                          picker.ModelFault,
		strings.Repeat("x", maxInBand) + "Server exiting":                                                   picker.ModelFault, // far down in a stack
	} {
		assert.Equal(t, want.String(), table.InBand(text).String(), text)
	}
}

// What a code is set to counts for the texts that mean it.
func TestInBandOverrides(t *testing.T) {
	table, err := New(map[string]string{"NOT_FOUND": "caller-fault", "INTERNAL": "failure", "INVALID_ARGUMENT": "model-fault"})
	require.NoError(t, err)
	assert.Equal(t, picker.CallerFault, table.InBand("Request for unknown model: 'x' is not found"))
	assert.Equal(t, picker.Failure, table.InBand("boom"))
	assert.Equal(t, picker.ModelFault, table.InBand("unexpected shape for input 'i'"))
	assert.Equal(t, picker.Overload, table.InBand("Exceeds maximum queue size"))
}

// Each text that tells its code is judged in-band as it is with the code.
func TestInBandAgreesWithCodes(t *testing.T) {
	table := defaultTable(t)
	for _, s := range spoken {
		code, ok := codeOf("a " + s.text + " b")
		assert.True(t, ok, s.text)
		assert.Equal(t, s.code, code, s.text)
	}
	for _, code := range telling {
		for _, r := range rules[code] {
			if r.outcome == picker.Failure || r.outcome == picker.Cancelled {
				continue
			}
			assert.Equal(t, r.outcome.String(), table.InBand("some "+r.text+" words").String(), "%s %q", code, r.text)
		}
	}
}

func TestInBandDoesNotAllocate(t *testing.T) {
	table, text := defaultTable(t), "Failed to process the request(s) for model instance 'x_0_0', message: boom"
	assert.Zero(t, testing.AllocsPerRun(100, func() { table.InBand(text) }))
}

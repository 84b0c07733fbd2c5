package interop

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/mlbalancer/mlbalancer/examples/triton/inference"
	"github.com/mlbalancer/mlbalancer/internal/oip"
)

// This program links mlbalancer, our own messages of the protocol, and an application's stubs of it. Had two of them registered
// the same names it would not have started; the names are the application's.
func TestNamesBelongToTheApplication(t *testing.T) {
	t.Parallel()
	request := (&inference.ModelInferRequest{}).ProtoReflect().Descriptor()
	ours := (&oip.ModelInferRequest{}).ProtoReflect().Descriptor()
	require.Equal(t, request.FullName(), ours.FullName())

	found, err := protoregistry.GlobalFiles.FindDescriptorByName(request.FullName())
	require.NoError(t, err)
	assert.Same(t, request, found.(protoreflect.MessageDescriptor))
	message, err := protoregistry.GlobalTypes.FindMessageByName(request.FullName())
	require.NoError(t, err)
	assert.Same(t, request, message.Descriptor())
}

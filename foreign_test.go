package mlbalancer_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// Programs bring the messages of their model server along, under the server's names, and protobuf lets a name be registered once:
// what we link may register names of gRPC, of protobuf, of xDS (which gRPC's load reports are part of) and our own.
func TestNothingForeignIsRegistered(t *testing.T) {
	own := []protoreflect.FullName{"google", "pb", "grpc", "xds", "udpa", "envoy", "validate", "mlbalancer"}
	found := map[protoreflect.FullName]bool{}
	protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		first, _, _ := strings.Cut(string(f.Package()), ".")
		found[protoreflect.FullName(first)] = true
		if f.Path() != stubsPath {
			assert.Contains(t, own, protoreflect.FullName(first), f.Path())
		}
		return true
	})
	assert.True(t, found["mlbalancer"], "the messages of mlbalancer.gpustats.v1")
}

const stubsPath = "grpc_service.proto" // as Triton's and KServe's are called

// stubs registers what the stubs of Triton or KServe register when a program starts: the messages that are read here, in name.
var stubs = sync.OnceValue(func() error {
	file := &descriptorpb.FileDescriptorProto{
		Name: proto.String(stubsPath), Package: proto.String("inference"), Syntax: proto.String("proto3"),
		Service: []*descriptorpb.ServiceDescriptorProto{{Name: proto.String("GRPCInferenceService")}},
	}
	for _, name := range []string{
		"ServerReadyRequest", "ServerReadyResponse", "ModelReadyRequest", "ModelReadyResponse", "ModelInferRequest",
		"ModelInferResponse", "ModelStreamInferResponse", "ModelStatisticsRequest", "ModelStatisticsResponse", "ModelStatistics",
		"RepositoryIndexRequest", "RepositoryIndexResponse", "RepositoryModelLoadRequest",
	} {
		file.MessageType = append(file.MessageType, &descriptorpb.DescriptorProto{Name: proto.String(name)})
	}
	fd, err := protodesc.NewFile(file, protoregistry.GlobalFiles)
	if err != nil {
		return err
	}
	if err := protoregistry.GlobalFiles.RegisterFile(fd); err != nil {
		return err
	}
	for i := range fd.Messages().Len() {
		if err := protoregistry.GlobalTypes.RegisterMessage(dynamicpb.NewMessageType(fd.Messages().Get(i))); err != nil {
			return err
		}
	}
	return nil
})

func TestAProgramsOwnStubsCanBeRegistered(t *testing.T) {
	require.NoError(t, stubs())
	// and a channel works beside them
	cc := serve(t, 1).client(t)
	require.Equal(t, "s0", infer(t, deadline(t), cc, "m"))
}

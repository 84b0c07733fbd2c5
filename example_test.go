package mlbalancer_test

import (
	"context"
	"fmt"
	"log"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/mlbalancer/mlbalancer"
	"github.com/mlbalancer/mlbalancer/internal/oip"
	"github.com/mlbalancer/mlbalancer/picker"
)

// modelServer answers as a Triton server of a given name would.
type modelServer struct {
	oip.UnimplementedGRPCInferenceServiceServer
	name string
}

func (s *modelServer) ModelInfer(_ context.Context, req *oip.ModelInferRequest) (*oip.ModelInferResponse, error) {
	return &oip.ModelInferResponse{ModelName: req.ModelName, Id: s.name}, nil
}

// Three servers in memory, and a client whose calls of one model go to one server. Against real servers the target would be
// "dns:///triton.models.svc:8001" and there would be no dialer.
func ExampleDialOptions() {
	listeners := map[string]*bufconn.Listener{}
	for _, name := range []string{"gpu-1", "gpu-2", "gpu-3"} {
		server := grpc.NewServer()
		oip.RegisterGRPCInferenceServiceServer(server, &modelServer{name: name})
		listeners[name] = bufconn.Listen(1 << 16)
		go server.Serve(listeners[name])
		defer server.Stop()
	}
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return listeners[addr].DialContext(ctx) }),
	}

	opts = append(opts, mlbalancer.DialOptions()...)
	cc, err := grpc.NewClient("mlb-static:///gpu-1,gpu-2,gpu-3", opts...)
	if err != nil {
		log.Fatal(err)
	}
	defer cc.Close()

	client := oip.NewGRPCInferenceServiceClient(cc)
	for _, model := range []string{"resnet50", "resnet50", "llama-3", "llama-3"} {
		var d picker.Decision
		req := &oip.ModelInferRequest{ModelName: model}
		resp, err := client.ModelInfer(context.Background(), req, grpc.WaitForReady(true), mlbalancer.WithDecision(&d))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(d.Model, d.Reason, resp.Id)
	}
	// Output:
	// resnet50 home gpu-1
	// resnet50 home gpu-1
	// llama-3 home gpu-2
	// llama-3 home gpu-2
}

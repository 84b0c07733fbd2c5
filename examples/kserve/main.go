// Command kserve calls a model on a fleet of KServe model servers through the client that protoc generates from KServe's
// protocol definition. The two lines that bring in model-aware balancing are marked.
//
//	go run ./kserve -target mlb-static:///10.0.0.1:8081,10.0.0.2:8081 -model sklearn-iris -n 20
package main

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer" // 1: the policy and the mlb-static resolver
	"github.com/mlbalancer/mlbalancer/examples/kserve/inference"
)

// patience is the deadline of each call.
const patience = 30 * time.Second

func main() {
	log.SetFlags(0)
	target := flag.String("target", "mlb-static:///127.0.0.1:8001,127.0.0.1:8011", "gRPC target of the servers")
	model := flag.String("model", "sum", "name of a model with one FP32 input")
	n := flag.Int("n", 10, "number of calls")
	flag.Parse()
	if err := run(context.Background(), os.Stdout, *target, *model, *n); err != nil {
		log.Fatal("kserve: ", err)
	}
}

// run calls the model n times and prints a line for each call. It returns an error if one of them failed.
func run(ctx context.Context, out io.Writer, target, model string, n int, opts ...grpc.DialOption) error {
	opts = append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))
	opts = append(opts, mlbalancer.DialOptions()...) // 2: in place of nothing
	cc, err := grpc.NewClient(target, opts...)
	if err != nil {
		return err
	}
	defer cc.Close()
	client := inference.NewGRPCInferenceServiceClient(cc)

	req, err := newRequest(ctx, client, model)
	if err != nil {
		return err
	}
	failed := 0
	for i := range n {
		took, server, answer, err := call(ctx, client, req)
		if err != nil {
			failed++
			answer = fmt.Sprintf("%v: %.60s", status.Code(err), firstLine(status.Convert(err).Message()))
		}
		fmt.Fprintf(out, "%4d  %9.2f ms  %s  %s\n", i+1, took.Seconds()*1e3, server, answer)
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d calls failed", failed, n)
	}
	return nil
}

// call calls the model once. It returns how long that took, the address of the server that was asked, and what it answered.
func call(
	ctx context.Context, client inference.GRPCInferenceServiceClient, req *inference.ModelInferRequest,
) (took time.Duration, server, answer string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var p peer.Peer
	start := time.Now()
	resp, err := client.ModelInfer(ctx, req, grpc.Peer(&p))
	took = time.Since(start)
	server = "no server"
	if p.Addr != nil {
		server = p.Addr.String()
	}
	if err != nil {
		return took, server, "", err
	}
	return took, server, firstOutput(resp), nil
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}

// newRequest asks what the model takes, and makes a request of that form. Dimensions of any size become 4.
func newRequest(ctx context.Context, client inference.GRPCInferenceServiceClient, model string) (*inference.ModelInferRequest, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	meta, err := client.ModelMetadata(ctx, &inference.ModelMetadataRequest{Name: model})
	if err != nil {
		return nil, err
	}
	if len(meta.Inputs) != 1 || meta.Inputs[0].Datatype != "FP32" {
		return nil, fmt.Errorf("model %q takes %v, this example sends one FP32 tensor", model, meta.Inputs)
	}
	input := &inference.ModelInferRequest_InferInputTensor{
		Name: meta.Inputs[0].Name, Datatype: "FP32", Contents: &inference.InferTensorContents{},
	}
	size := int64(1)
	for _, dim := range meta.Inputs[0].Shape {
		if dim < 0 {
			dim = 4
		}
		input.Shape = append(input.Shape, dim)
		size *= dim
	}
	for i := range size {
		input.Contents.Fp32Contents = append(input.Contents.Fp32Contents, float32(i+1))
	}
	return &inference.ModelInferRequest{ModelName: model, Inputs: []*inference.ModelInferRequest_InferInputTensor{input}}, nil
}

// firstOutput shows the first number of the first output, which servers send typed or raw.
func firstOutput(resp *inference.ModelInferResponse) string {
	if len(resp.Outputs) == 0 {
		return "no output"
	}
	o := resp.Outputs[0]
	var first float32
	switch {
	case o.Datatype != "FP32":
		return fmt.Sprintf("%s: %s%v", o.Name, o.Datatype, o.Shape)
	case len(o.GetContents().GetFp32Contents()) > 0:
		first = o.Contents.Fp32Contents[0]
	case len(resp.RawOutputContents) > 0 && len(resp.RawOutputContents[0]) >= 4:
		first = math.Float32frombits(binary.LittleEndian.Uint32(resp.RawOutputContents[0]))
	default:
		return o.Name + ": empty"
	}
	return fmt.Sprintf("%s[0] = %g", o.Name, first)
}

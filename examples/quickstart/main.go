// Command quickstart starts three simulated model servers in this process and calls four models on them through the model-aware
// policy: each model is loaded once and then served where it is. The two lines that bring in the policy are marked.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/mlbalancer/mlbalancer" // 1
	"github.com/mlbalancer/mlbalancer/internal/fleet"
	"github.com/mlbalancer/mlbalancer/internal/oip"
	"github.com/mlbalancer/mlbalancer/picker"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal("quickstart: ", err)
	}
}

func run(ctx context.Context, out io.Writer) error {
	servers, err := fleet.Start(fleet.Config{Servers: 3, Scale: 1.0 / 20, Seed: 1}) // loads take 250 ms, calls 12 ms
	if err != nil {
		return err
	}
	defer servers.Close()

	var list []string
	for _, s := range servers.Servers {
		list = append(list, s.Addr()+";name="+s.Name())
	}
	opts := servers.DialOptions()
	opts = append(opts, mlbalancer.DialOptions()...) // 2
	cc, err := grpc.NewClient("mlb-static:///"+strings.Join(list, ","), opts...)
	if err != nil {
		return err
	}
	defer cc.Close()

	client := oip.NewClient(cc)
	for range 3 {
		for _, model := range []string{"resnet50", "bert-base", "whisper", "llama-8b"} {
			var d picker.Decision
			start := time.Now()
			if _, err := client.Infer(ctx, fleet.NewRequest(model, -1), mlbalancer.WithDecision(&d)); err != nil {
				return err
			}
			fmt.Fprintf(out, "%-9s  on %s  (%s)  %4d ms\n", model, d.Endpoint, d.Reason, time.Since(start).Milliseconds())
		}
	}
	return nil
}

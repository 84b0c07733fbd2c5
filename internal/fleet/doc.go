// Package fleet simulates GPU model servers over real gRPC: each speaks inference.GRPCInferenceService, has a few workers behind
// one run queue, memory for a few models, and one lane that loads a model at a time. It says how it is in grpc.health.v1, load
// reports in trailers and mlbalancer.gpustats.v1, as far as it is told to, and truly unless it is told to lie. What a policy does
// to such servers (queues, cold loads, evictions) is what it would do to real ones, at a chosen fraction of their time.
//
//	f, err := fleet.Start(fleet.Config{Servers: 8, Slots: 4, Scale: 1.0 / 20, Seed: 1})
//	if err != nil { ... }
//	defer f.Close()
//	cc, err := grpc.NewClient("mlb-static:///"+strings.Join(f.Addrs(), ","), f.DialOptions()...)
//	resp, err := oip.NewClient(cc).Infer(ctx, fleet.NewRequest("resnet", 250*time.Millisecond))
//
// Durations in Config, requests and Stats are model time: what a real server would take. The wall clock runs Scale times that,
// and so do the durations that servers report: they are what a client measures.
package fleet

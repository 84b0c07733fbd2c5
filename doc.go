// Package mlbalancer places the calls of a gRPC client on a fleet of model servers so that each model is served where
// it is loaded.
//
// It is a load-balancing policy for grpc-go, model_aware, and what a policy alone cannot have: a look at the request message,
// which names the model. Two lines bring it in:
//
//	import "github.com/mlbalancer/mlbalancer"
//
//	opts = append(opts, mlbalancer.DialOptions()...)
//	cc, err := grpc.NewClient("dns:///triton.models.svc:8001", opts...)
//
// Generated stubs, calls and servers stay as they are. Where the model's name stands in a message is known for the
// methods of Triton, KServe, MLServer, OpenVINO Model Server, TorchServe, TensorFlow Serving, TGIS, Riva and BentoML;
// for others [github.com/mlbalancer/mlbalancer/balancer.Config] says it.
//
// A program that knows the model itself needs no interceptors: this package imported for its side effect, a service
// config that selects the policy, and either metadata x-model-id or a Request in the call's context (see
// [github.com/mlbalancer/mlbalancer/picker.NewContext]).
//
// Importing the package registers the policy and the mlb-static resolver.
package mlbalancer

package peers

import (
	"context"

	"google.golang.org/grpc"
	gbalancer "google.golang.org/grpc/balancer"

	"github.com/mlbalancer/mlbalancer"
	"github.com/mlbalancer/mlbalancer/internal/oip"
	"github.com/mlbalancer/mlbalancer/picker"
)

// row is one line of the pick table: a policy, and how it comes to know a call's model.
type row struct {
	label  string
	policy policy
	// once places and ends a call for the i-th model, modulo nModels, and returns where it went.
	once func(p gbalancer.Picker, i int) (gbalancer.SubConn, error)
	// single says that one goroutine only may call once.
	single bool
}

func rows() []row {
	var all []row
	for _, p := range policies {
		if p.name != modelAware.name {
			all = append(all, row{label: p.label, policy: p, once: placing(withMetadata)})
		}
	}
	return append(all,
		row{label: "model_aware", policy: modelAwareTold, once: placing(withRequest)},
		row{label: "model_aware_record", policy: modelAwareTold, once: recorded(), single: true},
		row{label: "model_aware_metadata", policy: modelAwareTold, once: placing(withMetadata)},
		row{label: "model_aware_interceptor", policy: modelAwareTold, once: intercepting()},
		row{label: "model_aware_ring", policy: modelAware, once: placing(withRequest)},
	)
}

// recorded returns a row's once for calls with the interceptor's record in their contexts. It is a fresh one for each call, in the place of the last.
func recorded() func(p gbalancer.Picker, i int) (gbalancer.SubConn, error) {
	infos, records := make([]gbalancer.PickInfo, nModels), make([]*picker.Call, nModels)
	for i := range nModels {
		var ctx context.Context
		ctx, records[i] = picker.NewCall(withRequest(i), nil)
		infos[i] = gbalancer.PickInfo{FullMethodName: method, Ctx: ctx}
	}
	return func(p gbalancer.Picker, i int) (gbalancer.SubConn, error) {
		i %= nModels
		*records[i] = picker.Call{}
		return place(p, infos[i])
	}
}

// withRequest returns a context that holds the picker's Request beside the metadata of an ordinary call.
func withRequest(i int) context.Context {
	return picker.NewContext(withMetadata(i), picker.Request{ModelID: modelName(i)})
}

// intercepting returns a row's once that begins with the client interceptor and a message, which alone names the model, and so contains all the
// work that the policy does for a call.
func intercepting() func(p gbalancer.Picker, i int) (gbalancer.SubConn, error) {
	intercept := mlbalancer.UnaryClientInterceptor()
	contexts, requests := make([]context.Context, nModels), make([]*oip.ModelInferRequest, nModels)
	for i := range nModels {
		contexts[i], requests[i] = withoutModel(i), inferRequest(i)
	}
	return func(p gbalancer.Picker, i int) (sc gbalancer.SubConn, err error) {
		i %= nModels
		err = intercept(contexts[i], method, requests[i], nil, nil,
			func(ctx context.Context, method string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) (err error) {
				sc, err = place(p, gbalancer.PickInfo{FullMethodName: method, Ctx: ctx})
				return err
			})
		return sc, err
	}
}

// placing returns a row's once for calls whose contexts are made beforehand.
func placing(ctx func(i int) context.Context) func(p gbalancer.Picker, i int) (gbalancer.SubConn, error) {
	infos := calls(ctx)
	return func(p gbalancer.Picker, i int) (gbalancer.SubConn, error) { return place(p, infos[i%nModels]) }
}

// place picks and ends one call.
func place(p gbalancer.Picker, info gbalancer.PickInfo) (gbalancer.SubConn, error) {
	res, err := p.Pick(info)
	if err != nil {
		return nil, err
	}
	if res.Done != nil {
		res.Done(answered)
	}
	return res.SubConn, nil
}

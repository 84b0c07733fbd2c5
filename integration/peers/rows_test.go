package peers

import (
	"context"

	gbalancer "google.golang.org/grpc/balancer"

	"github.com/mlbalancer/mlbalancer/picker"
)

// row is one line of the pick table: a policy, and how it comes to know a call's model.
type row struct {
	label  string
	policy policy
	// once places and ends the i-th call, of nModels different ones.
	once func(p gbalancer.Picker, i int) error
}

func rows() []row {
	var all []row
	for _, p := range policies {
		r := row{label: p.label, policy: p, once: placing(withMetadata)}
		if p.name == modelAware.name {
			r.once = placing(withRequest)
		}
		all = append(all, r)
	}
	return append(all,
		row{label: "model_aware_metadata", policy: modelAware, once: placing(withMetadata)},
	)
}

// withRequest returns a context that holds the picker's Request beside the metadata of an ordinary call.
func withRequest(i int) context.Context {
	return picker.NewContext(withMetadata(i), picker.Request{ModelID: modelName(i)})
}

// placing returns a row's once for calls whose contexts are made beforehand.
func placing(ctx func(i int) context.Context) func(p gbalancer.Picker, i int) error {
	infos := calls(ctx)
	return func(p gbalancer.Picker, i int) error { return place(p, infos[i%nModels]) }
}

// place picks and ends one call.
func place(p gbalancer.Picker, info gbalancer.PickInfo) error {
	res, err := p.Pick(info)
	if err != nil {
		return err
	}
	if res.Done != nil {
		res.Done(answered)
	}
	return nil
}

package server

import (
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	gpb "github.com/mlbalancer/mlbalancer/proto/mlbalancer/gpustats/v1"
)

// What a filter may hold, since it is kept for as long as its watcher stays.
const (
	maxFilterNames = 1024
	maxFilterBytes = 64 << 10
)

// filter is the models that a caller asks for; all of them if it is empty.
type filter map[string]struct{}

func newFilter(names []string) (filter, error) {
	if len(names) > maxFilterNames {
		return nil, status.Errorf(codes.InvalidArgument, "gpustats: models has %d names, want at most %d, or none for all",
			len(names), maxFilterNames)
	}
	size := 0
	f := make(filter, len(names))
	for _, n := range names {
		size += len(n)
		f[n] = struct{}{}
	}
	if size > maxFilterBytes {
		return nil, status.Errorf(codes.InvalidArgument, "gpustats: models has %d bytes of names, want at most %d",
			size, maxFilterBytes)
	}
	return f, nil
}

// apply returns r with the models that f asks for and everything else. It leaves r as it is.
func (f filter) apply(r *gpb.NodeReport) *gpb.NodeReport {
	if len(f) == 0 {
		return r
	}
	r = shallowCopy(r)
	r.Models = slices.DeleteFunc(slices.Clone(r.Models), func(m *gpb.Model) bool { return !f.has(m) })
	r.ModelsComplete = proto.Bool(false)
	return r
}

func (f filter) has(m *gpb.Model) bool {
	if _, ok := f[m.GetName()]; ok {
		return true
	}
	if m.Version == nil {
		return false
	}
	_, ok := f[m.GetName()+":"+m.GetVersion()]
	return ok
}

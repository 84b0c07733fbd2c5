package balancer

import (
	"context"
	"strings"
	"sync/atomic"

	gbalancer "google.golang.org/grpc/balancer"
	"google.golang.org/grpc/metadata"

	"github.com/mlbalancer/mlbalancer/internal/methods"
	"github.com/mlbalancer/mlbalancer/picker"
)

// requestReader reads the picker's Request of a call, as one Config says. It is immutable.
type requestReader struct {
	headers []string
	session []string                // the header of the affinity key; nil if none is read
	fields  map[string]methods.Path // where the config says that messages name the model, by "/service/Method" or "/service/*"
	updates map[string]bool         // what the config says are updates, likewise

	// seen holds methods that were called: each slot keeps the first that came to it. It saves the pick path most of a map look-up, since
	// gRPC's method names are constants, which compare equal by their address.
	seen [seenSlots]atomic.Pointer[seenMethod]
}

const seenSlots = 64

type seenMethod struct {
	full string
	methods.Method
}

func newRequestReader(c *RequestConfig) *requestReader {
	r := &requestReader{headers: c.ModelHeaders, fields: map[string]methods.Path{}, updates: map[string]bool{}}
	if c.AffinityHeader != "" {
		r.session = []string{c.AffinityHeader}
	}
	for pattern, field := range c.ModelFields {
		r.fields[pattern], _ = methods.ParsePath(field) // checked when the config was parsed
	}
	for _, pattern := range c.UpdateMethods {
		r.updates[pattern] = true
	}
	return r
}

// known returns what is known of a method that was called before, or nil.
func (r *requestReader) known(full string) *methods.Method {
	if seen := r.seen[slotOf(full)].Load(); seen != nil && seen.full == full {
		return &seen.Method
	}
	return nil
}

// learn returns what is known of a method, and keeps it if there is room.
func (r *requestReader) learn(full string) methods.Method {
	m := r.lookup(full)
	if slot := &r.seen[slotOf(full)]; slot.Load() == nil {
		slot.CompareAndSwap(nil, &seenMethod{full, m})
	}
	return m
}

// slotOf spreads method names over the slots by what differs between the methods of a service: their length and last letters.
func slotOf(full string) int {
	n := len(full)
	if n < 4 {
		return n
	}
	return (n + 7*int(full[n-1]) + 13*int(full[n-2]) + 29*int(full[n-4])) & (seenSlots - 1)
}

// lookup returns what is built in of a method, and what the config says of it on top.
func (r *requestReader) lookup(full string) methods.Method {
	m, _ := methods.Lookup(full)
	if path, ok := find(r.fields, full); ok {
		m.Model, m.Version, m.VersionNumber = path, nil, nil
	}
	if _, ok := find(r.updates, full); ok {
		m.Class = methods.Update
	}
	return m
}

// find returns what is set for a method, or else for its service. The maps are empty or small: a service is looked for among all keys, so
// that no pattern need be put together.
func find[V any](by map[string]V, full string) (v V, ok bool) {
	if len(by) == 0 {
		return v, false
	}
	if v, ok = by[full]; ok {
		return v, true
	}
	service := full[:strings.LastIndexByte(full, '/')+1]
	for pattern, v := range by {
		if len(pattern) == len(service)+1 && strings.HasPrefix(pattern, service) && pattern[len(service)] == '*' {
			return v, true
		}
	}
	return v, false
}

// read fills a query with the Request of a call and its key: what the caller put into ctx, nil if nothing, wins over metadata,
// and metadata over the message, which is nil where there is none.
func (r *requestReader) read(q *picker.Query, own *picker.Request, key uint64, info *gbalancer.PickInfo, msg any) {
	if own != nil {
		q.Request, q.Key = *own, key
	} else {
		q.Request = picker.Request{}
	}
	if r.session != nil && q.AffinityKey == "" {
		q.AffinityKey = header(info.Ctx, r.session)
	}
	if q.Type != picker.Auto && q.ModelID != "" {
		return
	}
	if m := r.known(info.FullMethodName); m != nil {
		r.infer(q, m, info, msg)
		return
	}
	m := r.learn(info.FullMethodName)
	r.infer(q, &m, info, msg)
}

// infer fills in what the caller has left open, given what is known of the method.
func (r *requestReader) infer(q *picker.Query, m *methods.Method, info *gbalancer.PickInfo, msg any) {
	if q.Type == picker.Auto && m.Class == methods.Update {
		q.Type = picker.Update
	}
	if q.ModelID != "" {
		return
	}
	if q.ModelID = header(info.Ctx, r.headers); q.ModelID == "" && msg != nil {
		q.ModelID = m.ReadModel(msg)
	}
	q.Key = picker.Key(q.ModelID)
}

// header returns the first value that metadata has for one of a number of keys and that is neither empty nor too long.
func header(ctx context.Context, keys []string) string {
	for _, h := range keys {
		for _, v := range metadata.ValueFromOutgoingContext(ctx, h) {
			if v != "" && len(v) <= methods.MaxModel {
				return v
			}
		}
	}
	return ""
}

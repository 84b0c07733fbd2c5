package balancer

import (
	"context"
	"strings"

	"google.golang.org/grpc/metadata"

	"github.com/mlbalancer/mlbalancer/internal/methods"
	"github.com/mlbalancer/mlbalancer/picker"
)

// requestReader reads the picker's Request of a call, as one Config says. It is immutable.
type requestReader struct {
	headers []string
	known   map[string]methods.Method // what the config says of methods, exact and "/service/*"; usually empty
}

func newRequestReader(c *RequestConfig) *requestReader {
	r := &requestReader{headers: c.ModelHeaders, known: map[string]methods.Method{}}
	for pattern, field := range c.ModelFields {
		m, _ := methods.Lookup(pattern)
		m.Model, _ = methods.ParsePath(field) // checked when the config was parsed
		m.Version, m.VersionNumber = nil, nil
		r.known[pattern] = m
	}
	for _, pattern := range c.UpdateMethods {
		m, ok := r.known[pattern]
		if !ok {
			m, _ = methods.Lookup(pattern)
		}
		m.Class = methods.Update
		r.known[pattern] = m
	}
	return r
}

// method returns what is known of a method: what the config says of it, or else of its service, or else what is built in.
func (r *requestReader) method(full string) methods.Method {
	if len(r.known) > 0 {
		if m, ok := r.known[full]; ok {
			return m
		}
		if slash := strings.LastIndexByte(full, '/'); slash >= 0 {
			if m, ok := r.lookupService(full[:slash+1]); ok {
				return m
			}
		}
	}
	m, _ := methods.Lookup(full)
	return m
}

// lookupService finds the pattern of a service; prefix ends with the slash before the method.
func (r *requestReader) lookupService(prefix string) (methods.Method, bool) {
	for pattern, m := range r.known {
		if len(pattern) == len(prefix)+1 && strings.HasPrefix(pattern, prefix) && pattern[len(prefix)] == '*' {
			return m, true
		}
	}
	return methods.Method{}, false
}

// read returns the Request of a call: what the caller put into ctx wins over metadata, and metadata over the message, which is nil where
// there is none.
func (r *requestReader) read(full string, ctx context.Context, msg any) picker.Request {
	req, _ := picker.FromContext(ctx)
	if req.Type != picker.Auto && req.ModelID != "" {
		return req
	}
	m := r.method(full)
	if req.Type == picker.Auto && m.Class == methods.Update {
		req.Type = picker.Update
	}
	if req.ModelID == "" {
		req.ModelID = r.header(ctx)
	}
	if req.ModelID == "" && msg != nil {
		req.ModelID = m.ReadModel(msg)
	}
	return req
}

func (r *requestReader) header(ctx context.Context) string {
	for _, h := range r.headers {
		for _, v := range metadata.ValueFromOutgoingContext(ctx, h) {
			if v != "" {
				return v
			}
		}
	}
	return ""
}

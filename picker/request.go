package picker

import "github.com/cespare/xxhash/v2"

// Type says what a call does to a server, which decides the strategy that places it.
type Type uint8

const (
	// Auto leaves it to the method that is called, and is Inference where that says nothing. It is the zero value.
	Auto Type = iota
	// Inference is a call that a model answers.
	Inference
	// Update is a call that changes or manages a server (loading a model, say); it goes to the least loaded endpoint.
	Update
)

// String returns the type in lower case.
func (t Type) String() string {
	switch t {
	case Inference:
		return "inference"
	case Update:
		return "update"
	}
	return "auto"
}

// DefaultTokens is the cost of a request whose size is unknown, in tokens: the median request of the
// arena trace (40 tokens in, 211 out), rounded.
const DefaultTokens = 256

// maxTokens bounds the cost of one request, so that a nonsensical estimate cannot outweigh a whole fleet.
const maxTokens = 1 << 20

// Request is what is known of one call before it is placed.
type Request struct {
	// ModelID is the model's name, or "name:version" where the call asks for a version. Empty means that the
	// call names no model: it is placed by load alone.
	ModelID string
	// AffinityKey names what the call shares with others beside its model, and a server may have kept of them: a session, the
	// beginning of a prompt. Calls of one model and key go to one of the endpoints that hold the model, the same for all clients,
	// as long as it is expected to answer nearly as soon as any other. It is a preference of the strategy "affinity" among
	// endpoints that hold the model: it never has a model loaded, and it counts for nothing in other strategies and where
	// servers do not say what they hold. Empty, the default, means none.
	AffinityKey string
	// Type is the kind of call. The zero value leaves it to the method.
	Type Type
	// Tokens is the expected size of the call, prompt and answer together. 0 or less means unknown and counts as
	// DefaultTokens.
	Tokens int
}

// Cost returns the request's share of an endpoint's load, in tokens, from 1 to 1,048,576.
func (r *Request) Cost() uint32 {
	switch {
	case r.Tokens <= 0:
		return DefaultTokens
	case r.Tokens > maxTokens:
		return maxTokens
	}
	return uint32(r.Tokens)
}

// size returns how many times as large as usual the request is, at least 1.
func (r *Request) size() float64 { return sizeOf(r.Cost()) }

// sizeOf is size for a request of a given cost.
func sizeOf(cost uint32) float64 {
	if cost <= DefaultTokens {
		return 1
	}
	return float64(cost) / DefaultTokens
}

// Key returns the point of the ring that a model hashes to (xxhash64 of its name, seed 0).
func Key(model string) uint64 { return xxhash.Sum64String(model) }

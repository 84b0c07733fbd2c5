package picker

import (
	"fmt"
	"slices"
)

// Strategy chooses an endpoint for one request. It is built for one membership (the endpoints and their weights) and
// serves every Table with that membership, so it must take status and load from its arguments, not keep them.
// Pick is called concurrently, holds no lock and does not allocate.
type Strategy interface {
	// Pick returns the chosen endpoint, which is Ready, has a weight above 0 and is not in q.Avoid; or a Choice with Index -1
	// and reason Wait if an endpoint that should serve the request is about to become ready. It is called only where there is an
	// endpoint to choose: Table.Pick refuses the request if none is ready, and clears q.Avoid if it holds all that are.
	Pick(t *Table, q *Query) Choice
}

// Query is one decision's input. The caller owns it and may reuse it after Pick returns.
type Query struct {
	Request
	// Key is Key(Request.ModelID).
	Key uint64
	// Now is the time of the decision in nanoseconds since an arbitrary fixed point.
	Now int64
	// Stream says that the call is a stream, whose duration says nothing.
	Stream bool
	// Fresh says that the call is not to go to an endpoint of Avoid, not even if there is no other.
	Fresh bool
	// Pin, if not nil, is what holds the call on one endpoint; see Table.Place.
	Pin *Pin
	// Avoid lists endpoints that earlier attempts of the same call tried; usually empty, never long.
	Avoid []*Endpoint

	// Outlook is what the strategy expects of its choice. A Strategy may fill it in; it is empty when Pick is called.
	Outlook Outlook

	anywhere bool // also where the model is not said to be
	again    bool // and where it was asked for in vain

	passed  [maxPlace]*Endpoint // those that another call was faster at
	nPassed int
}

// Avoids reports whether e is one of q.Avoid, or was chosen in vain for the query.
func (q *Query) Avoids(e *Endpoint) bool {
	for _, a := range q.Avoid {
		if a == e {
			return true
		}
	}
	for _, p := range q.passed[:q.nPassed] {
		if p == e {
			return true
		}
	}
	return false
}

// Clear lets go of all that the query refers to, so that it may be kept for another call.
func (q *Query) Clear() {
	q.Request, q.Avoid, q.Fresh, q.Pin, q.Outlook = Request{}, nil, false, nil, Outlook{}
	clear(q.passed[:q.nPassed])
	q.nPassed = 0
}

// pass makes the query avoid an endpoint from now on.
func (q *Query) pass(e *Endpoint) {
	q.passed[q.nPassed] = e
	q.nPassed++
}

// Choice is what a Strategy decided. It is two words, which stay in registers.
type Choice struct {
	// Index is the endpoint's index in the Table, or -1.
	Index int
	// Reason says why.
	Reason Reason
}

// Outlook is what a Strategy expects of the endpoint that it has chosen for a call.
type Outlook struct {
	// Expect is how long the call is expected to take there, in nanoseconds, and Wait the part of it until the server begins to
	// work on it. 0: nothing is expected.
	Expect, Wait int64

	model     *Model // on the endpoint, and its placement, where the strategy has looked them up; else nil
	placement *placement
}

// loads reports whether a call that is sent somewhere for a reason waits for its model to be loaded, for all that the strategy knows.
func (o *Outlook) loads(r Reason) bool {
	return r == Cold || r == Grown || r == Warm && o.Expect == 0
}

// Reason says why an endpoint was chosen, or why none was.
type Reason uint8

// The reasons. Those up to Pinned come with Index -1; all others with an endpoint.
const (
	// NoneReady: no endpoint can take the call.
	NoneReady Reason = iota
	// Wait: an endpoint that should take the call is still connecting.
	Wait
	// Refused: endpoints are ready, but none is to be sent the call: breakers are open, servers are draining, or those that would take it do
	// not hold the model.
	Refused
	// Tried: every endpoint that could take the call was tried before.
	Tried
	// Pinned: the one endpoint that the call may go to cannot take it.
	Pinned
	// Home: the first endpoint of the model's ring order.
	Home
	// Replica: a later one of the model's replicas, since those before it are over their bound or unusable.
	Replica
	// Overflow: an endpoint beyond the replicas, since all of them are over their bound or unusable.
	Overflow
	// LessLoaded: the less loaded of two random draws.
	LessLoaded
	// Tie: one of two random draws that were as good as equal.
	Tie
	// Only: the only endpoint there was to choose.
	Only
	// Turn: the next one in turn.
	Turn
	// Warm: an endpoint that holds the model, or will soon.
	Warm
	// Cold: an endpoint that has to load the model, since that is sooner.
	Cold
	// Grown: an endpoint that has to load the model, which is due another copy.
	Grown
	// Session: the endpoint, of those that hold the model, that the call's affinity key belongs to.
	Session
	// Sequence: the endpoint that has what came before in the call's sequence.
	Sequence
	// Probe: a call that finds out whether an endpoint, or a model on it, has recovered.
	Probe
	// Panic: an endpoint that would not be used if enough others were usable.
	Panic

	// NumReasons is the number of reasons; all are below it.
	NumReasons
)

var reasonNames = [NumReasons]string{
	NoneReady: "none-ready", Wait: "wait", Refused: "refused", Tried: "tried", Pinned: "pinned",
	Home: "home", Replica: "replica", Overflow: "overflow",
	LessLoaded: "less-loaded", Tie: "tie", Only: "only", Turn: "turn", Warm: "warm", Cold: "cold", Grown: "grown",
	Session: "session", Sequence: "sequence", Probe: "probe", Panic: "panic",
}

// String returns the reason in lower case, with dashes.
func (r Reason) String() string {
	if r < NumReasons {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

// MarshalText implements encoding.TextMarshaler.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// Options is the configuration of one strategy: a pointer to a struct with JSON tags, whose name is also the key of
// its section in the service config. It must survive a JSON round trip.
type Options interface {
	// Strategy returns the name that the strategy is registered under.
	Strategy() string
	// Validate returns a *FieldError for the first field that is out of range, or nil.
	Validate() error
	// Build returns the strategy for a membership.
	Build(b Build) Strategy
}

// Build is what a strategy is built from.
type Build struct {
	// Members are the endpoints with their weights; read only. A member whose Endpoint is nil is a hole: no endpoint.
	Members []Member
	// Previous is the strategy of the same name and equal Options that served the membership before this one,
	// or nil. A strategy may take from it what has not changed.
	Previous Strategy
	// Rand returns uniformly distributed random numbers and is safe for concurrent use.
	Rand func() uint64
}

// FieldError says which field of a configuration is wrong, what it holds and what it should hold.
type FieldError struct {
	Field     string // path below the section, such as "replicas"
	Got, Want string
}

// Error implements error.
func (e *FieldError) Error() string {
	return fmt.Sprintf("%s is %s, want %s", e.Field, e.Got, e.Want)
}

// BadField returns a FieldError whose Got is the value in Go's default format.
func BadField(field string, got any, want string) error {
	return &FieldError{Field: field, Got: fmt.Sprint(got), Want: want}
}

var registry = map[string]func() Options{}

// Register makes a strategy known under the name of the Options that defaults returns; each call of defaults returns a
// fresh value with the documented defaults. Register is to be called from init functions only and panics if the name is taken.
func Register(defaults func() Options) {
	name := defaults().Strategy()
	if _, taken := registry[name]; taken {
		panic(fmt.Sprintf("picker: strategy %q registered twice", name))
	}
	registry[name] = defaults
}

// Defaults returns fresh default Options of the named strategy, or nil if there is none of that name.
func Defaults(name string) Options {
	if f := registry[name]; f != nil {
		return f()
	}
	return nil
}

// Strategies returns the names of all registered strategies, sorted.
func Strategies() []string {
	names := make([]string, 0, len(registry))
	for name := range registry {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

package picker

import "time"

// maxTried is how many endpoints a Call remembers: one less than the attempts that gRPC's retries allow by default.
const maxTried = 4

// Call is the record of one RPC. It rides in the RPC's context, which is the only thing that the attempts of one
// RPC have in common, and holds the message until the first pick reads the Request from it.
//
// A Call belongs to one RPC whose attempts follow one another; it is not safe for concurrent use by several RPCs.
type Call struct {
	// Message is the request message, or nil if there is none. The pick path reads it once, before the first
	// attempt, and drops it.
	Message any
	// Responses, if not nil, is where the responses of a stream are reported; each attempt's pick fills it in.
	Responses *Responses
	// Decision, if not nil, is filled in by each attempt's pick.
	Decision *Decision
	// Pin, if not nil, holds the call on the endpoint of the others that share it.
	Pin *Pin
	// Inspect, if not nil, makes the picker hand itself to the function instead of placing the call, which then
	// ends with an error. That is how a policy's state is read from outside.
	Inspect func(policy any)
	// Stream says that the RPC is a stream, whose duration is no measure of latency.
	Stream bool
	// Fresh refuses an attempt when every endpoint that could take it was tried already. Otherwise such an attempt goes to one
	// of those.
	Fresh bool

	resolved bool
	nTried   uint8
	outcome  Outcome // of the last attempt that has ended
	attempts int
	request  Request
	key      uint64
	pushback time.Duration // what the server of the last attempt that has ended asked for
	tried    [maxTried]*Endpoint
	reasons  [maxTried]Reason // why each of tried was
}

// Decision is where one call went, and why. Fields describe the last attempt that was placed.
type Decision struct {
	// Endpoint is the identity of the endpoint that was chosen: its name, or its addresses.
	Endpoint string
	// Model is the model that the call was placed for; empty if it named none.
	Model string
	// Reason is why that endpoint was chosen.
	Reason Reason
	// Attempt counts the attempts that were placed, from 1. 0 means that the call never was.
	Attempt int
}

// Resolve sets the request that this call's attempts are placed by, and releases the message.
func (c *Call) Resolve(req *Request, key uint64) {
	c.request, c.key, c.resolved = *req, key, true
	c.Message = nil
}

// Resolved returns the request that Resolve has set, and its key; nil and 0 before. The Request is not to be changed.
func (c *Call) Resolved() (req *Request, key uint64) {
	if !c.resolved {
		return nil, 0
	}
	return &c.request, c.key
}

// Tried returns the endpoints that attempts of this call have been sent to, at most the last four. The slice is
// valid until the next attempt.
func (c *Call) Tried() []*Endpoint { return c.tried[:c.nTried] }

// Placed notes that an attempt goes to e.
func (c *Call) Placed(e *Endpoint, reason Reason) {
	c.attempts++
	if c.nTried == maxTried {
		copy(c.tried[:], c.tried[1:])
		copy(c.reasons[:], c.reasons[1:])
		c.nTried--
	}
	c.tried[c.nTried], c.reasons[c.nTried] = e, reason
	c.nTried++
	c.decide()
}

// Unplaced takes the last Placed back: the attempt never reached its endpoint.
func (c *Call) Unplaced() {
	if c.nTried > 0 {
		c.nTried--
		c.attempts--
		c.tried[c.nTried] = nil
		c.decide()
	}
}

// Ended notes how the last attempt ended, and how long its server asked callers to wait before the next: 0 if it did
// not say, less than 0 if there is to be no next.
func (c *Call) Ended(o Outcome, pushback time.Duration) { c.outcome, c.pushback = o, pushback }

// Last returns how many attempts were placed, how the last of them that has ended did, and what its server asked for.
func (c *Call) Last() (attempts int, o Outcome, pushback time.Duration) {
	return c.attempts, c.outcome, c.pushback
}

// decide fills in the Decision with the last attempt that was placed.
func (c *Call) decide() {
	switch {
	case c.Decision == nil:
	case c.nTried == 0:
		*c.Decision = Decision{}
	default:
		last := c.nTried - 1
		*c.Decision = Decision{Endpoint: c.tried[last].ID(), Model: c.request.ModelID, Reason: c.reasons[last], Attempt: c.attempts}
	}
}

// Package outcome judges how attempts end: what the status of an attempt says about the endpoint, about the model on it,
// or about the caller.
//
// The code alone does not tell. Model servers use one code for many things (UNAVAILABLE is Triton's word for a full queue, for
// a model that loads, for a server that stops and for a missing password), and one thing has many codes (a model that is not
// there is NOT_FOUND, UNAVAILABLE, INVALID_ARGUMENT, INTERNAL or UNKNOWN). So a Table looks at the code and at the text. What
// it does not know, it judges by the code alone:
//
//	OK                                                                  success
//	UNAVAILABLE, DEADLINE_EXCEEDED, DATA_LOSS, CANCELLED                failure
//	INTERNAL, UNKNOWN                                                   model-fault
//	RESOURCE_EXHAUSTED                                                  overload
//	INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS, PERMISSION_DENIED,
//	UNAUTHENTICATED, FAILED_PRECONDITION, ABORTED, OUT_OF_RANGE,
//	UNIMPLEMENTED                                                       caller-fault
//
// CANCELLED and DEADLINE_EXCEEDED are the server's only if the caller still waited for the answer.
//
// A NOT_FOUND is a model that is not there only if its text says so. Any other is something that the caller looked for in
// the model's own data: to take it for a missing model would send that model's calls away from the endpoints that hold it.
package outcome

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer/picker"
)

// numCodes is the number of gRPC's status codes; all are below it.
const numCodes = codes.Unauthenticated + 1

// Table says what each status means. It is immutable.
type Table struct {
	byCode [numCodes]entry
}

// entry is what is known of one code.
type entry struct {
	rules      []rule         // by text; the first that matches counts
	outcome    picker.Outcome // where none does
	overridden bool
}

// New returns the table of all known servers in which the codes of overrides, by gRPC's name ("NOT_FOUND"), always mean what they
// are set to there: one of "success", "failure", "model-fault", "misplaced", "overload", "draining", "caller-fault" and
// "cancelled". Nil overrides nothing. The error is a *picker.FieldError below "codes".
func New(overrides map[string]string) (*Table, error) {
	t := &Table{}
	for c, o := range defaults {
		t.byCode[c] = entry{rules: rules[codes.Code(c)], outcome: o}
	}
	if err := t.override(overrides); err != nil {
		return nil, err
	}
	return t, nil
}

// End is how an attempt ended.
type End struct {
	// Err is the attempt's status as an error; nil is OK.
	Err error
	// Took is how long the attempt lasted.
	Took time.Duration
	// Slow is the time from which on an attempt is slow. An endpoint that is given less cannot be blamed for a deadline. 0 blames
	// it for any.
	Slow time.Duration
	// Received says that something came back from the endpoint: headers, a message or the status itself.
	Received bool
}

// closing is how grpc ends the calls of a channel that is closed under them.
const closing = "grpc: the client connection is closing"

// Classify judges an attempt that reached its endpoint. ctx is the attempt's context.
//
// A call that the caller cancelled, or whose channel it closed, is Cancelled, whatever is overridden. So is one whose deadline
// passed, unless the attempt had the slow time and nothing came back: that is the endpoint's failure. CANCELLED and
// DEADLINE_EXCEEDED before the call's end are the server's own.
//
// It does not allocate, except for an error that wraps a status or is none.
func (t *Table) Classify(ctx context.Context, end End) picker.Outcome {
	if end.Err == nil {
		return picker.Success
	}
	s, ok := status.FromError(end.Err)
	if !ok {
		s = status.FromContextError(end.Err)
	}
	code, text := s.Code(), s.Message()
	if code == codes.OK || code >= numCodes {
		code = codes.Unknown
	}
	if code == codes.Canceled && (text == closing || over(ctx)) {
		return picker.Cancelled
	}
	e := &t.byCode[code]
	if code == codes.DeadlineExceeded && !e.overridden && over(ctx) && (end.Received || end.Took < end.Slow) {
		return picker.Cancelled
	}
	return t.judge(code, text)
}

// judge goes by what the table has of a code.
func (t *Table) judge(code codes.Code, text string) picker.Outcome {
	e := &t.byCode[code]
	for i := range e.rules {
		if strings.Contains(text, e.rules[i].text) {
			return e.rules[i].outcome
		}
	}
	return e.outcome
}

// over reports whether nobody waits for the answer any more. A server that knows the deadline ends the call as well, and its
// word may come before the timer of ctx.
func over(ctx context.Context) bool {
	if ctx.Err() != nil {
		return true
	}
	deadline, ok := ctx.Deadline()
	return ok && !time.Now().Before(deadline)
}

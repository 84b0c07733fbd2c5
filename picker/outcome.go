package picker

import "fmt"

// Outcome is what the end of an attempt says about where it went.
type Outcome uint8

const (
	// Unsent: the attempt never reached the endpoint. It judges nobody. It is the zero value.
	Unsent Outcome = iota
	// Success: the endpoint did what it was asked.
	Success
	// Failure: the endpoint failed, whatever the model.
	Failure
	// ModelFault: the model failed on this endpoint; others there may be fine.
	ModelFault
	// Misplaced: the endpoint does not hold the model. Another one may.
	Misplaced
	// Overload: the endpoint has too much to do. It is not broken.
	Overload
	// Draining: the endpoint is going away, in good order.
	Draining
	// CallerFault: the call was wrong, and would be anywhere.
	CallerFault
	// Cancelled: nobody waited for the answer any more.
	Cancelled

	// NumOutcomes is the number of outcomes; all are below it.
	NumOutcomes
)

var outcomeNames = [NumOutcomes]string{
	Unsent: "unsent", Success: "success", Failure: "failure", ModelFault: "model-fault", Misplaced: "misplaced",
	Overload: "overload", Draining: "draining", CallerFault: "caller-fault", Cancelled: "cancelled",
}

// String returns the outcome in lower case, with dashes.
func (o Outcome) String() string {
	if o < NumOutcomes {
		return outcomeNames[o]
	}
	return fmt.Sprintf("outcome(%d)", uint8(o))
}

// MarshalText implements encoding.TextMarshaler.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// ParseOutcome returns the outcome with a name.
func ParseOutcome(name string) (Outcome, error) {
	for o, n := range outcomeNames {
		if n == name {
			return Outcome(o), nil
		}
	}
	return 0, fmt.Errorf("outcome is %q, want one of %q", name, outcomeNames)
}

// Elsewhere reports whether another endpoint may well answer a call that ended so here.
func (o Outcome) Elsewhere() bool {
	return o == Failure || o == ModelFault || o == Misplaced || o == Overload || o == Draining
}

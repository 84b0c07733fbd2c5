package outcome

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/mlbalancer/mlbalancer/picker"
)

// codeNames are gRPC's names of the codes that can be overridden; OK cannot.
var codeNames = [numCodes]string{
	codes.Canceled: "CANCELLED", codes.Unknown: "UNKNOWN", codes.InvalidArgument: "INVALID_ARGUMENT",
	codes.DeadlineExceeded: "DEADLINE_EXCEEDED", codes.NotFound: "NOT_FOUND", codes.AlreadyExists: "ALREADY_EXISTS",
	codes.PermissionDenied: "PERMISSION_DENIED", codes.ResourceExhausted: "RESOURCE_EXHAUSTED",
	codes.FailedPrecondition: "FAILED_PRECONDITION", codes.Aborted: "ABORTED", codes.OutOfRange: "OUT_OF_RANGE",
	codes.Unimplemented: "UNIMPLEMENTED", codes.Internal: "INTERNAL", codes.Unavailable: "UNAVAILABLE",
	codes.DataLoss: "DATA_LOSS", codes.Unauthenticated: "UNAUTHENTICATED",
}

// override makes codes mean one outcome each, whatever the text.
func (t *Table) override(overrides map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(overrides)) {
		code := slices.Index(codeNames[:], name)
		if code <= int(codes.OK) {
			return picker.BadField("codes", fmt.Sprintf("%q", name), "keys among "+strings.Join(codeNames[1:], ", "))
		}
		o, err := picker.ParseOutcome(overrides[name])
		if err != nil || o == picker.Unsent {
			return picker.BadField("codes."+name, fmt.Sprintf("%q", overrides[name]), "one of "+outcomes())
		}
		t.byCode[code] = entry{outcome: o, overridden: true}
	}
	return nil
}

// outcomes lists what an answer can mean: all but that there was none.
func outcomes() string {
	var b strings.Builder
	for o := picker.Success; o < picker.NumOutcomes; o++ {
		if o > picker.Success {
			b.WriteString(", ")
		}
		b.WriteString(o.String())
	}
	return b.String()
}

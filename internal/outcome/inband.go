package outcome

import (
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/mlbalancer/mlbalancer/picker"
)

// maxInBand is how much of an in-band error is looked at, in bytes: a text may end in a page of stack, and all that is known stands before it.
const maxInBand = 1 << 10

// InBand judges an error that comes as a text in a message of a stream, without a code. The code is the one that its server would have sent,
// as far as the text tells it, and INTERNAL, which is a fault of the model, where it does not; overrides of that code count. Texts that only
// gRPC itself sends mean nothing here: the message was delivered. It does not allocate.
func (t *Table) InBand(text string) picker.Outcome {
	text = text[:min(len(text), maxInBand)]
	code, ok := codeOf(text)
	if !ok {
		return t.byCode[codes.Internal].outcome
	}
	return t.judge(code, text)
}

// codeOf returns the code that a server means by a text, if it is known.
func codeOf(text string) (code codes.Code, ok bool) {
	for i := range spoken {
		if strings.Contains(text, spoken[i].text) {
			return spoken[i].code, true
		}
	}
	for _, code := range telling {
		for _, r := range rules[code] {
			if r.outcome != picker.Failure && r.outcome != picker.Cancelled && strings.Contains(text, r.text) {
				return code, true
			}
		}
	}
	return codes.Internal, false
}

// telling are the codes whose rules have texts that tell their code, unlike those of NOT_FOUND, which are words of any text.
var telling = [...]codes.Code{
	codes.Unavailable, codes.InvalidArgument, codes.FailedPrecondition, codes.ResourceExhausted, codes.DeadlineExceeded, codes.Internal, codes.Unknown,
}

// spoken are further texts that tell their code. Servers that have in-band errors are Triton and OVMS.
var spoken = [...]struct {
	text string
	code codes.Code
}{
	{"Request for unknown model", codes.NotFound},                        // Triton
	{"Model with requested name is not found", codes.NotFound},           // OVMS
	{"Model with requested version is not found", codes.NotFound},        // OVMS
	{"unexpected shape for input", codes.InvalidArgument},                // Triton, as all below
	{"unexpected datatype", codes.InvalidArgument},                       // before 2.20
	{"but model expects '", codes.InvalidArgument},                       // "data-type is 'FP32', but model expects 'UINT8'"
	{" inputs but got ", codes.InvalidArgument},                          // "expected 3 inputs but got 0 inputs"
	{"unexpected inference input", codes.InvalidArgument},                // a name that the model does not have
	{"unexpected inference output", codes.InvalidArgument},               // likewise
	{"batch-size must be ", codes.InvalidArgument},                       // "inference request batch-size must be <= 8"
	{"batch size does not match other inputs", codes.InvalidArgument},    //
	{"has no shape but model requires", codes.InvalidArgument},           //
	{"request must specify input shape", codes.InvalidArgument},          //
	{"byte size mismatch for input", codes.InvalidArgument},              // the length of the data is not that of the shape
	{"unexpected total byte size", codes.InvalidArgument},                // likewise
	{"must specify the START flag", codes.InvalidArgument},               // a sequence that was not begun here
	{"must specify a non-zero or non-empty corr", codes.InvalidArgument}, // a sequence without an id
}

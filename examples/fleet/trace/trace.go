// Package trace reads traces of requests to model servers.
//
// A trace is a CSV file, gzipped or not, with one header line and one row per request, sorted by arrival:
//
//	arrival_s,model_id,user_id,input_tokens,output_tokens,duration_s
//	0,arena-13,,13,199,
//	0.207938,arena-02,,36,137,
//
// The first two columns are needed, the others may be absent; columns may stand in any order, and ones of other names
// are skipped. An empty field means that the value is unknown, never that it is zero.
package trace

// Unknown stands for a number that the trace does not have.
const Unknown = -1

// Trace is a sequence of requests.
type Trace struct {
	// Name says where the trace comes from: a file's name, or a description.
	Name string
	// Rows are the requests, sorted by arrival. A trace that Read returned has at least one.
	Rows []Row
}

// Row is one request of a trace.
type Row struct {
	// Arrival is when the request arrives, in seconds since an arbitrary start; 0 or more.
	Arrival float64
	// Model names what must be loaded to serve the request; never empty.
	Model string
	// User is the tenant, or empty if unknown.
	User string
	// InputTokens is the length of the prompt in tokens, or Unknown.
	InputTokens int
	// OutputTokens is the length of the answer in tokens, or Unknown.
	OutputTokens int
	// Duration is the measured execution time in seconds, or Unknown.
	Duration float64
}

// Span returns the seconds from the first arrival to the last.
func (t *Trace) Span() float64 {
	if len(t.Rows) == 0 {
		return 0
	}
	return t.Rows[len(t.Rows)-1].Arrival - t.Rows[0].Arrival
}

// Models returns the number of requests of each model.
func (t *Trace) Models() map[string]int {
	counts := make(map[string]int)
	for _, r := range t.Rows {
		counts[r.Model]++
	}
	return counts
}

package sim

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
)

// Trace is a sequence of requests that a scenario replays, again and again, at its own speed.
type Trace struct {
	// Rows are in order of arrival.
	Rows []TraceRow
	// Models are the names of the models, those with most rows first.
	Models []string
}

// TraceRow is one request.
type TraceRow struct {
	// At is when it arrives, as a fraction of the trace's length, from 0 to below 1.
	At float64
	// Model is the index of its model.
	Model int32
}

// The columns of a trace file that are read.
const (
	columnArrival = "arrival_s"
	columnModel   = "model_id"
)

// ReadTrace reads a trace in CSV with the columns arrival_s, in seconds and ascending, and model_id; others are ignored. file is
// what errors call it.
func ReadTrace(r io.Reader, file string) (*Trace, error) {
	in := csv.NewReader(r)
	header, err := in.Read()
	if err != nil && err != io.EOF {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	arrival, model := slices.Index(header, columnArrival), slices.Index(header, columnModel)
	if arrival < 0 || model < 0 {
		return nil, fmt.Errorf("%s:1: header is %q, want the columns %s and %s", file, header, columnArrival, columnModel)
	}
	var times []float64
	var names []string
	for {
		record, err := in.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		line, _ := in.FieldPos(0)
		at, err := strconv.ParseFloat(record[arrival], 64)
		if err != nil || !(at >= 0) || math.IsInf(at, 0) || len(times) > 0 && at < times[len(times)-1] {
			const want = "seconds from 0, not before the row above"
			return nil, fmt.Errorf("%s:%d: %s is %q, want %s", file, line, columnArrival, record[arrival], want)
		}
		if record[model] == "" {
			return nil, fmt.Errorf("%s:%d: %s is empty, want the name of a model", file, line, columnModel)
		}
		times, names = append(times, at), append(names, record[model])
	}
	if len(times) < 2 || times[len(times)-1] == times[0] {
		return nil, fmt.Errorf("%s: %w", file, errShort)
	}
	return newTrace(times, names), nil
}

var errShort = errors.New("got less than two rows at different times, want at least two")

func newTrace(times []float64, names []string) *Trace {
	count := map[string]int{}
	for _, n := range names {
		count[n]++
	}
	t := &Trace{Rows: make([]TraceRow, len(times))}
	for n := range count {
		t.Models = append(t.Models, n)
	}
	slices.SortFunc(t.Models, func(a, b string) int { return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b)) })
	index := map[string]int32{}
	for i, n := range t.Models {
		index[n] = int32(i)
	}
	// The last arrival of a pass and the first of the next are a mean interarrival time apart.
	n := float64(len(times))
	span := (times[len(times)-1] - times[0]) * n / (n - 1)
	for i := range times {
		t.Rows[i] = TraceRow{At: (times[i] - times[0]) / span, Model: index[names[i]]}
	}
	return t
}

// shares returns the models' shares of the rows.
func (t *Trace) shares() []float64 {
	share := make([]float64, len(t.Models))
	for _, r := range t.Rows {
		share[r.Model] += 1 / float64(len(t.Rows))
	}
	return share
}

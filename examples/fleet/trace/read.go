package trace

import (
	"bufio"
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Error is a fault in a trace file and its place.
type Error struct {
	File         string
	Line, Column int    // from 1; Column counts bytes
	Field        string // name of the column, or empty if the fault is not in a field
	Got, Want    string
}

// Error returns "file:line:column: field: got X, want Y".
func (e *Error) Error() string {
	field := ""
	if e.Field != "" {
		field = e.Field + ": "
	}
	return fmt.Sprintf("%s:%d:%d: %sgot %s, want %s", e.File, e.Line, e.Column, field, e.Got, e.Want)
}

// Read reads the trace file at path. A file that starts as gzip does is decompressed, whatever its name. Faults in the
// content are of type *Error.
func Read(path string) (*Trace, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	buffered := bufio.NewReader(f)
	var in io.Reader = buffered
	if magic, _ := buffered.Peek(2); string(magic) == "\x1f\x8b" {
		unzipped, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		in = unzipped
	}
	rows, err := Parse(in, path)
	if err != nil {
		return nil, err
	}
	return &Trace{Name: filepath.Base(path), Rows: rows}, nil
}

// Parse reads the rows of a trace in CSV from r. file is what errors call it.
func Parse(r io.Reader, file string) ([]Row, error) {
	p := parser{file: file, csv: csv.NewReader(r)}
	p.csv.ReuseRecord = true
	if err := p.header(); err != nil {
		return nil, err
	}
	p.csv.FieldsPerRecord = p.width
	var rows []Row
	for {
		record, err := p.csv.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, p.csvError(err, record)
		}
		row, err := p.row(record)
		if err != nil {
			return nil, err
		}
		if len(rows) > 0 && row.Arrival < rows[len(rows)-1].Arrival {
			return nil, p.fieldError(record, arrival, fmt.Sprintf("at least %v, the arrival before it", rows[len(rows)-1].Arrival))
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		return nil, &Error{File: file, Line: 2, Column: 1, Got: "the end of the file", Want: "at least one row"}
	}
	return rows, nil
}

// column is one of the columns that have a meaning.
type column int

const (
	arrival column = iota
	model
	user
	inputTokens
	outputTokens
	duration
	numColumns
)

var columnNames = [numColumns]string{"arrival_s", "model_id", "user_id", "input_tokens", "output_tokens", "duration_s"}

// headerWant is what a header line should be.
var headerWant = "a header line such as " + strings.Join(columnNames[:], ",")

type parser struct {
	file  string
	csv   *csv.Reader
	width int
	at    [numColumns]int // where each column stands, -1 for absent
}

func (p *parser) header() error {
	record, err := p.csv.Read()
	if err == io.EOF {
		return &Error{File: p.file, Line: 1, Column: 1, Got: "an empty file", Want: headerWant}
	}
	if err != nil {
		return p.csvError(err, record)
	}
	p.width = len(record)
	names := slices.Clone(record)
	names[0] = strings.TrimPrefix(names[0], "\ufeff") // the byte order mark that some spreadsheets write
	for c, name := range columnNames {
		p.at[c] = slices.Index(names, name)
		if p.at[c] < 0 && (column(c) == arrival || column(c) == model) {
			got := fmt.Sprintf("columns %q", strings.Join(names, ","))
			return &Error{File: p.file, Line: 1, Column: 1, Field: name, Got: got, Want: headerWant}
		}
		if again := slices.Index(names[p.at[c]+1:], name); p.at[c] >= 0 && again >= 0 {
			line, col := p.csv.FieldPos(p.at[c] + 1 + again)
			return &Error{File: p.file, Line: line, Column: col, Field: name, Got: "the same column again", Want: "each column once"}
		}
	}
	return nil
}

func (p *parser) row(record []string) (Row, error) {
	row := Row{Model: p.value(record, model), User: p.value(record, user)}
	if row.Model == "" {
		return row, p.fieldError(record, model, "the name of a model")
	}
	var err error
	if row.Arrival, err = p.seconds(record, arrival); err != nil {
		return row, err
	}
	if row.Arrival == Unknown {
		return row, p.fieldError(record, arrival, wantSeconds)
	}
	if row.InputTokens, err = p.tokens(record, inputTokens); err != nil {
		return row, err
	}
	if row.OutputTokens, err = p.tokens(record, outputTokens); err != nil {
		return row, err
	}
	row.Duration, err = p.seconds(record, duration)
	return row, err
}

// value returns a column's field, or "" if the trace has no such column.
func (p *parser) value(record []string, c column) string {
	if p.at[c] < 0 {
		return ""
	}
	return record[p.at[c]]
}

const (
	wantSeconds = "seconds as a decimal number from 0, such as 0.207938"
	wantTokens  = "a whole number of tokens from 0, or nothing if it is unknown"
)

func (p *parser) seconds(record []string, c column) (float64, error) {
	field := p.value(record, c)
	if field == "" {
		return Unknown, nil
	}
	v, err := strconv.ParseFloat(field, 64)
	if err != nil || !(v >= 0) || math.IsInf(v, 0) {
		want := wantSeconds
		if c == duration {
			want += ", or nothing if it is unknown"
		}
		return 0, p.fieldError(record, c, want)
	}
	return v, nil
}

func (p *parser) tokens(record []string, c column) (int, error) {
	field := p.value(record, c)
	if field == "" {
		return Unknown, nil
	}
	v, err := strconv.Atoi(field)
	if err != nil || v < 0 {
		return 0, p.fieldError(record, c, wantTokens)
	}
	return v, nil
}

func (p *parser) fieldError(record []string, c column, want string) error {
	line, col := p.csv.FieldPos(p.at[c])
	got := "nothing"
	if v := record[p.at[c]]; v != "" {
		got = strconv.Quote(v)
	}
	return &Error{File: p.file, Line: line, Column: col, Field: columnNames[c], Got: got, Want: want}
}

// csvError says in this package's terms what encoding/csv found wrong.
func (p *parser) csvError(err error, record []string) error {
	var bad *csv.ParseError
	switch {
	case !errors.As(err, &bad): // the file itself cannot be read
		return fmt.Errorf("%s: %w", p.file, err)
	case errors.Is(err, csv.ErrFieldCount):
		return &Error{File: p.file, Line: bad.Line, Column: bad.Column,
			Got: fmt.Sprintf("%d fields", len(record)), Want: fmt.Sprintf("%d as in the header", p.width)}
	}
	return &Error{File: p.file, Line: bad.Line, Column: bad.Column, Got: bad.Err.Error(), Want: "comma-separated values"}
}

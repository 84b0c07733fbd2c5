package main

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// sample is what one benchmark measured.
type sample struct {
	ns     float64 // for each operation
	allocs float64 // for each operation
}

// repetition is what each benchmark measured, by name without "Benchmark" and the number of cores.
type repetition map[string]sample

// line is a result as go test prints it: name, iterations, and pairs of value and unit.
var line = regexp.MustCompile(`^Benchmark(\S+?)(?:-\d+)?\s+\d+\s+(.*)$`)

// add reads the output of a test binary.
func (r repetition) add(output string) error {
	for _, l := range strings.Split(output, "\n") {
		m := line.FindStringSubmatch(strings.TrimSpace(l))
		if m == nil {
			continue
		}
		fields := strings.Fields(m[2])
		var s sample
		for i := 0; i+1 < len(fields); i += 2 {
			v, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return fmt.Errorf("%s: %q where a number is due", m[1], fields[i])
			}
			switch fields[i+1] {
			case "ns/op":
				s.ns = v
			case "allocs/op":
				s.allocs = v
			}
		}
		if s.ns == 0 {
			return fmt.Errorf("%s: no time in %q", m[1], l)
		}
		r[m[1]] = s
	}
	return nil
}

// results are the repetitions.
type results []repetition

// values returns f of each repetition.
func (rs results) values(f func(repetition) float64) []float64 {
	vs := make([]float64, len(rs))
	for i, r := range rs {
		vs[i] = f(r)
	}
	return vs
}

// median returns the median of f over the repetitions, and NaN if f has no value in one of them.
func (rs results) median(f func(repetition) float64) float64 {
	vs := rs.values(f)
	slices.Sort(vs)
	if len(vs) == 0 || math.IsNaN(vs[0]) { // NaN sorts first
		return math.NaN()
	}
	return (vs[(len(vs)-1)/2] + vs[len(vs)/2]) / 2
}

// spread formats the median of f, and its extremes where there is more than one repetition.
func (rs results) spread(f func(repetition) float64, format func(float64) string) string {
	vs := rs.values(f)
	text := format(rs.median(f))
	if len(vs) > 1 {
		text += fmt.Sprintf(" (%s .. %s)", format(slices.Min(vs)), format(slices.Max(vs)))
	}
	return text
}

// ns returns a benchmark's time, and NaN if it was not run.
func (r repetition) ns(name string) float64 {
	if s, ok := r[name]; ok {
		return s.ns
	}
	return math.NaN()
}

// allocs returns a benchmark's allocations, and NaN if it was not run.
func (r repetition) allocs(name string) float64 {
	if s, ok := r[name]; ok {
		return s.allocs
	}
	return math.NaN()
}

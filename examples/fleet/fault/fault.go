// Package fault reads what is to go wrong in a replay, and makes it happen to a simulated fleet.
//
// A fault is written kind:server@from or kind:server@from-to, such as
//
//	slow:2@33%-66%       server 2 takes 10 times as long in the middle third of the measured part
//	slow:2x4@33%-66%     4 times as long
//	fail:0x0.2@50%       server 0 answers 20 % of its calls with UNAVAILABLE from the middle on
//	kill:2@50%,kill:3@60%-80%
//
// where servers count from 0, times are per cent of the measured part, and one without an end lasts until the end of the replay.
package fault

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Fault is one thing that goes wrong.
type Fault struct {
	// Kind is a name in Kinds.
	Kind string
	// Server is the index of the server that it happens to.
	Server int
	// Factor is how many times as long a slow server takes, and the fraction of its calls that a failing one fails.
	Factor float64
	// From and To bound it, as fractions of the measured part. To is above 1 if it lasts until the end of the replay.
	From, To float64
}

// forever is a To that is never reached.
const forever = 2

// kind is a kind of fault.
type kind struct {
	name  string
	about string
	// factor is what an x is followed by: nil if the kind takes none.
	factor *factor
	// instant kinds have no end.
	instant bool
}

type factor struct {
	byDefault, min, max float64
	want                string
}

var kinds = []kind{
	{name: "slow", about: "requests and loads take x times as long (x10 if it is not given)",
		factor: &factor{10, 1, 1e6, "a factor from 1"}},
	{name: "fail", about: "a fraction x of the calls fails at once with UNAVAILABLE (x1 if it is not given)",
		factor: &factor{1, 0, 1, "a fraction from 0 to 1"}},
	{name: "hang", about: "calls are accepted and never answered"},
	{name: "kill", about: "the server dies; it restarts at the end, if there is one"},
	{name: "stop", about: "the server finishes what it has and stops; it restarts at the end, if there is one"},
	{name: "drain", about: "the server refuses new calls as Triton does after SIGTERM; it restarts at the end, if there is one"},
	{name: "restart", about: "the server dies and is back at once, with empty memory", instant: true},
}

// Usage describes the kinds, one a line.
func Usage() string {
	var b strings.Builder
	for _, k := range kinds {
		fmt.Fprintf(&b, "  %-8s %s\n", k.name, k.about)
	}
	return b.String()
}

// Parse reads a comma-separated list of faults of a fleet of so many servers. The empty string is no fault.
func Parse(list string, servers int) ([]Fault, error) {
	if list == "" {
		return nil, nil
	}
	var faults []Fault
	for spec := range strings.SplitSeq(list, ",") {
		f, err := parse(strings.TrimSpace(spec), servers)
		if err != nil {
			return nil, fmt.Errorf("fault %q: %w", spec, err)
		}
		faults = append(faults, f)
	}
	return faults, nil
}

func parse(spec string, servers int) (Fault, error) {
	what, when, ok := strings.Cut(spec, "@")
	name, target, ok2 := strings.Cut(what, ":")
	if !ok || !ok2 {
		return Fault{}, fmt.Errorf("want kind:server@from or kind:server@from-to, such as slow:2@33%%-66%%")
	}
	at := slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })
	if at < 0 {
		return Fault{}, fmt.Errorf("kind is %q, want %s", name, kindNames())
	}
	k := kinds[at]
	f := Fault{Kind: name, To: forever}
	target, times, hasFactor := strings.Cut(target, "x")
	var err error
	if f.Server, err = strconv.Atoi(target); err != nil || f.Server < 0 || f.Server >= servers {
		return Fault{}, fmt.Errorf("server is %q, want 0 to %d", target, servers-1)
	}
	switch {
	case hasFactor && k.factor == nil:
		return Fault{}, fmt.Errorf("factor is %q, want none: %s takes none", times, name)
	case hasFactor:
		f.Factor, err = strconv.ParseFloat(times, 64)
		if err != nil || !(f.Factor >= k.factor.min && f.Factor <= k.factor.max) {
			return Fault{}, fmt.Errorf("factor is %q, want %s", times, k.factor.want)
		}
	case k.factor != nil:
		f.Factor = k.factor.byDefault
	}
	from, to, hasEnd := strings.Cut(when, "-")
	if f.From, err = percent(from); err != nil {
		return Fault{}, fmt.Errorf("from is %w", err)
	}
	if hasEnd && k.instant {
		return Fault{}, fmt.Errorf("to is %q, want none: a %s has no end", to, name)
	}
	if hasEnd {
		if f.To, err = percent(to); err != nil {
			return Fault{}, fmt.Errorf("to is %w", err)
		}
		if f.To <= f.From {
			return Fault{}, fmt.Errorf("to is %q, want more than from (%s)", to, from)
		}
	}
	return f, nil
}

func percent(s string) (float64, error) {
	number, ok := strings.CutSuffix(s, "%")
	v, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || !(v >= 0 && v <= 100) {
		return 0, fmt.Errorf("%q, want 0%% to 100%% of the measured part", s)
	}
	return v / 100, nil
}

func kindNames() string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.name
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

// String returns the fault as it is written.
func (f Fault) String() string {
	s := fmt.Sprintf("%s:%d", f.Kind, f.Server)
	if f.Factor != 0 {
		s += "x" + strconv.FormatFloat(f.Factor, 'g', -1, 64)
	}
	s += fmt.Sprintf("@%.6g%%", f.From*100)
	if f.Lasts() {
		return s
	}
	return s + fmt.Sprintf("-%.6g%%", f.To*100)
}

// Lasts reports whether the fault has no end within the replay.
func (f Fault) Lasts() bool { return f.To >= forever }

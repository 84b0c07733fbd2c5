// Package fault reads what is to go wrong in a replay, and makes it happen to a simulated fleet.
//
// A fault is written kind:server@from or kind:server@from-to, such as
//
//	slow:2@33%-66%       server 2 takes 10 times as long in the middle third of the measured part
//	slow:2x4@33%-66%     4 times as long
//	fail:0x0.2@50%       server 0 answers 20 % of its calls with UNAVAILABLE from the middle on
//	kill:2@50%,kill:3@60%-80%
//	broken-model:2@33%-66%   server 2 fails all calls of the model that is asked for most
//	broken-model:2/m@50%     and of the model m
//	stall:2/gpustats@33%-66%  server 2 goes on as ever, but its gpustats stream falls silent
//	lie-idle:2@33%-66%   server 2 says in all of its signals that it has nothing to do
//	not-ready:2@33%-66%  server 2 says that it is not ready, and serves
//	restart-all          every server drains and restarts, one at a time, spread over the measured part
//
// where servers count from 0, times are per cent of the measured part, and one without an end lasts until the end of the replay.
package fault

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mlbalancer/mlbalancer/internal/fleet"
)

// Fault is one thing that goes wrong.
type Fault struct {
	// Kind is a name in Kinds.
	Kind string
	// Server is the index of the server that it happens to; 0 if it happens to all.
	Server int
	// Model is the model that is broken.
	Model string
	// Signals are those that are stalled, muted or lie.
	Signals fleet.Signals
	// Factor is how many times as long a slow server takes, and the fraction of its calls that a failing one fails.
	Factor float64
	// From and To bound it, as fractions of the measured part. To is above 1 if it lasts until the end of the replay.
	From, To float64
}

// forever is a To that is never reached.
const forever = 2

// allSignals are what a fault of signals happens to if it names none.
const allSignals = fleet.Health | fleet.OIP | fleet.ORCA | fleet.GPUStats

// kind is a kind of fault.
type kind struct {
	name  string
	about string
	// factor is what an x is followed by: nil if the kind takes none.
	factor *factor
	// model says that it happens to one model, which a slash is followed by.
	model bool
	// signal says that it happens to one signal, which a slash is followed by, or to all of them.
	signal bool
	// all says that it happens to every server, one after another, by default in all of the measured part.
	all bool
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
	{name: "restart", about: "the server dies and is back at the end, at once if there is none, with empty memory"},
	{name: "broken-model", model: true,
		about: "calls of one model fail with INTERNAL: /name, or that which is asked for most"},
	{name: "stall", signal: true,
		about: "signals (health, oip, orca, gpustats: one after a slash, else all) fall silent; calls are answered"},
	{name: "mute", signal: true, about: "the same signals are UNIMPLEMENTED"},
	{name: "lie-idle", signal: true, about: "the same signals say that there is nothing to do"},
	{name: "lie-busy", signal: true, about: "the same signals say that there is far too much to do"},
	{name: "lie-empty", signal: true, about: "the same signals say that no model is in memory"},
	{name: "not-ready", about: "the server says that it is not ready as a whole, and serves"},
	{name: "restart-all", all: true,
		about: "every server drains and restarts, one at a time; needs no server, and no times to fill the measured part"},
}

// Usage describes the kinds, one a line.
func Usage() string {
	var b strings.Builder
	for _, k := range kinds {
		fmt.Fprintf(&b, "  %-12s %s\n", k.name, k.about)
	}
	return b.String()
}

// Parse reads a comma-separated list of faults of a fleet of so many servers, which are asked for these models, the one with most calls
// first. The empty string is no fault.
func Parse(list string, servers int, models []string) ([]Fault, error) {
	if list == "" {
		return nil, nil
	}
	var faults []Fault
	for spec := range strings.SplitSeq(list, ",") {
		f, err := parse(strings.TrimSpace(spec), servers, models)
		if err != nil {
			return nil, fmt.Errorf("fault %q: %w", spec, err)
		}
		faults = append(faults, f)
	}
	return faults, nil
}

func parse(spec string, servers int, models []string) (Fault, error) {
	what, when, timed := spec, "", false
	if at := strings.LastIndexByte(spec, '@'); at >= 0 { // names of models may have one too
		what, when, timed = spec[:at], spec[at+1:], true
	}
	name, target, targeted := strings.Cut(what, ":")
	at := slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })
	switch {
	case at >= 0 && kinds[at].all && targeted:
		return Fault{}, fmt.Errorf("server is %q, want none: %s is for all", target, name)
	case at >= 0 && kinds[at].all:
	case !timed || !targeted:
		return Fault{}, fmt.Errorf("want kind:server@from or kind:server@from-to, such as slow:2@33%%-66%%")
	case at < 0:
		return Fault{}, fmt.Errorf("kind is %q, want %s", name, kindNames())
	}
	k := kinds[at]
	f := Fault{Kind: name, To: forever}
	if k.all {
		f.To = 1
	} else if err := f.aim(k, target, servers, models); err != nil {
		return Fault{}, err
	}
	if timed {
		if err := f.time(when); err != nil {
			return Fault{}, err
		}
	}
	return f, nil
}

// aim reads what the fault happens to: a server, and a factor, a model or a signal.
func (f *Fault) aim(k kind, target string, servers int, models []string) (err error) {
	target, model, named := strings.Cut(target, "/")
	target, times, hasFactor := strings.Cut(target, "x")
	if f.Server, err = strconv.Atoi(target); err != nil || f.Server < 0 || f.Server >= servers {
		return fmt.Errorf("server is %q, want 0 to %d", target, servers-1)
	}
	switch {
	case k.signal && named:
		f.Signals, err = fleet.ParseSignals(model)
		if err != nil || f.Signals == fleet.NoSignals {
			return fmt.Errorf("signal is %q, want one of %s", model, strings.ReplaceAll(allSignals.String(), ",", ", "))
		}
	case k.signal:
		f.Signals = allSignals
	case named && !k.model:
		return fmt.Errorf("model is %q, want none: %s takes none", model, k.name)
	case named && !slices.Contains(models, model):
		return fmt.Errorf("model is %q, want one of the trace, such as %q", model, models[0])
	case named:
		f.Model = model
	case k.model:
		f.Model = models[0]
	}
	switch {
	case hasFactor && k.factor == nil:
		return fmt.Errorf("factor is %q, want none: %s takes none", times, k.name)
	case hasFactor:
		f.Factor, err = strconv.ParseFloat(times, 64)
		if err != nil || !(f.Factor >= k.factor.min && f.Factor <= k.factor.max) {
			return fmt.Errorf("factor is %q, want %s", times, k.factor.want)
		}
	case k.factor != nil:
		f.Factor = k.factor.byDefault
	}
	return nil
}

// time reads when the fault happens.
func (f *Fault) time(when string) (err error) {
	from, to, hasEnd := strings.Cut(when, "-")
	if f.From, err = percent(from); err != nil {
		return fmt.Errorf("from is %w", err)
	}
	if hasEnd {
		if f.To, err = percent(to); err != nil {
			return fmt.Errorf("to is %w", err)
		}
	}
	if f.To <= f.From {
		return fmt.Errorf("to is %q, want more than from (%s)", cmp.Or(to, "100%"), from)
	}
	return nil
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
	s := f.Kind
	if !f.all() {
		s += fmt.Sprintf(":%d", f.Server)
	}
	if f.Factor != 0 {
		s += "x" + strconv.FormatFloat(f.Factor, 'g', -1, 64)
	}
	if f.Model != "" {
		s += "/" + f.Model
	}
	if f.Signals != 0 && f.Signals != allSignals {
		s += "/" + f.Signals.String()
	}
	s += fmt.Sprintf("@%.6g%%", f.From*100)
	if f.Lasts() {
		return s
	}
	return s + fmt.Sprintf("-%.6g%%", f.To*100)
}

// Lasts reports whether the fault has no end within the replay.
func (f Fault) Lasts() bool { return f.To >= forever }

func (f Fault) all() bool {
	return slices.ContainsFunc(kinds, func(k kind) bool { return k.name == f.Kind && k.all })
}

// Steps returns the faults of single servers that the fault consists of: itself, or if it happens to all of them, a drain of one after
// another. Each of these drains for half of the time that it has, so that the server is back for the other half before the
// next one goes.
func (f Fault) Steps(servers int) []Fault {
	if !f.all() {
		return []Fault{f}
	}
	steps := make([]Fault, servers)
	turn := (f.To - f.From) / float64(servers)
	for i := range steps {
		begin := f.From + float64(i)*turn
		steps[i] = Fault{Kind: "drain", Server: i, From: begin, To: begin + turn/2}
	}
	return steps
}

package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Policy places the calls of all clients of a run; where clients know different things it keeps them apart. Its methods are
// called one at a time.
type Policy interface {
	// Place returns the index of the server that a call is sent to, or -1 to send it nowhere.
	Place(now time.Duration, c *Call) int
	// Done is told how an attempt ended, at c.Server.
	Done(now time.Duration, c *Call, o Outcome)
	// Again reports whether a call that has just failed is to be sent once more.
	Again(now time.Duration, c *Call, o Outcome) bool
	// Report is what a client hears from a server. r is used again after it returns.
	Report(now time.Duration, client, server int, r *Report)
	// Tick is called every Ticks of the policy's kind.
	Tick(now time.Duration)
	// Changed is called when servers have come or gone; Fleet.Members says which there are now.
	Changed(now time.Duration)
}

// quiet is a Policy without its Place that takes no notice of anything.
type quiet struct{}

func (quiet) Done(time.Duration, *Call, Outcome)       {}
func (quiet) Again(time.Duration, *Call, Outcome) bool { return false }
func (quiet) Report(time.Duration, int, int, *Report)  {}
func (quiet) Tick(time.Duration)                       {}
func (quiet) Changed(time.Duration)                    {}

// Role is what a policy stands for in a comparison.
type Role uint8

const (
	// Ours is what the decision core does.
	Ours Role = iota
	// Baseline is what others do.
	Baseline
	// Bound is what no client could do.
	Bound
)

// String returns the role in lower case.
func (r Role) String() string { return [...]string{"ours", "baseline", "bound"}[r] }

// Kind is a kind of policy.
type Kind struct {
	Name string
	Role Role
	// About is a line that says what it does.
	About string

	hears bool          // it wants reports
	ticks time.Duration // between calls of Tick; 0 for never
	build func(f *Fleet) Policy
}

// kinds are all kinds but ours, which depend on what strategies there are.
var kinds = slices.Concat(baselines, bounds)

// Kinds returns all kinds of policies: ours, the baselines, the bounds.
func Kinds() []Kind { return slices.Concat(productKinds(), kinds) }

// KindOf returns the kind of a name. Our strategies go by their names too, where no other policy has it, and all of ours with
// options: "+retry" sends calls that failed to another server, "-breaker" goes without breakers. Its errors are of type
// *FieldError.
func KindOf(name string) (Kind, error) {
	for _, k := range Kinds() {
		if k.Name == name {
			return k, nil
		}
	}
	if k, ok := productKind(name); ok {
		return k, nil
	}
	var names []string
	for _, k := range Kinds() {
		names = append(names, k.Name)
	}
	return Kind{}, &FieldError{"policies", fmt.Sprintf("%q", name), "one of " + strings.Join(names, ", ")}
}

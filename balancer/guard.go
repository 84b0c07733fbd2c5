package balancer

import (
	"fmt"
	"strings"
	"time"
	"weak"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mlbalancer/mlbalancer/breaker"
	"github.com/mlbalancer/mlbalancer/picker"
)

// watchEvery is how often the policy looks after what time alone changes.
const watchEvery = 100 * time.Millisecond

// maxTransitions is how many changes of breakers are kept for read-outs.
const maxTransitions = 128

// guardLocked puts the breakers' rules in force.
func (p *policy) guardLocked() {
	c := p.config.Breaker.Config
	c.RampFor = time.Duration(c.OpenFor)
	p.guard.Group.Configure(monotonic(), c)
	p.guard.SetPerModel(p.config.Breaker.PerModel)
	p.guard.SetPanicThreshold(p.config.Health.PanicThreshold)
	p.guard.SetHealth(p.config.Health.score())
}

// enrollLocked makes the breakers of the membership's endpoints the group's.
func (p *policy) enrollLocked() {
	breakers := make([]*breaker.Breaker, 0, len(p.members.byID))
	for _, m := range p.members.slots {
		if m != nil {
			breakers = append(breakers, m.endpoint.Breaker())
		}
	}
	p.guard.Group.Set(monotonic(), breakers)
}

// watchEach returns the timer that calls watch, which sets it again each time. It does not keep the policy of a channel that is gone: gRPC does not
// close each one (see prober).
func watchEach(p *policy) *time.Timer {
	w := weak.Make(p)
	return time.AfterFunc(watchEvery, func() {
		if p := w.Value(); p != nil {
			p.watch()
		}
	})
}

// watch looks after breakers, reports their changes, and wakes the calls that were refused: each of them looks for a place again.
func (p *policy) watch() {
	p.mu.Lock()
	table, closed := p.table, p.closed
	p.mu.Unlock()
	if closed {
		return
	}
	p.guard.Watch(table, monotonic())
	p.guard.Group.Drain(p.transition)
	woken := p.refused.Swap(false)

	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	if woken && p.published != nil {
		fresh := *p.published
		p.pushLocked(p.state, &fresh)
	}
	p.watcher.Reset(watchEvery)
}

// transition notes one change of a breaker. It runs outside every lock.
func (p *policy) transition(e breaker.Event) {
	logger.Infof("breaker of %v", e)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.transitions) == maxTransitions {
		p.transitions = append(p.transitions[:0], p.transitions[1:]...)
	}
	p.transitions = append(p.transitions, e)
}

// errTried ends an attempt that is not to go where others of its call went, and has no other place to go. It is a status, so that it
// ends calls that wait for ready as well: whoever made the attempt has a better answer.
var errTried = status.Error(codes.Unavailable, Name+": every endpoint that could take the call was tried")

// guarded is why a call was not sent anywhere though endpoints are connected. Its text is put together when it is asked for. It is no gRPC
// status, so calls that wait for ready do wait, and are woken by watch.
type guarded struct{ policy *policy }

// Error implements error.
func (g *guarded) Error() string {
	p := g.policy
	p.mu.Lock()
	defer p.mu.Unlock()
	now := monotonic()
	var open, unwell []string
	draining := 0
	for _, i := range p.table.Ready() {
		e := p.table.Member(int(i)).Endpoint
		if e.Draining(now) {
			draining++
		}
		if e.Breaker().State() != breaker.Closed {
			open = append(open, describe(e))
		}
		if h := e.Health(); !h.Usable() {
			unwell = append(unwell, e.ID()+" is "+h.Server)
		}
	}
	var why []string
	if len(open) > 0 {
		why = append(why, fmt.Sprintf("%d breakers are open (%s)", len(open), some(open)))
	}
	if len(unwell) > 0 {
		why = append(why, fmt.Sprintf("by their health %d take no calls (%s)", len(unwell), some(unwell)))
	}
	if draining > 0 {
		why = append(why, fmt.Sprintf("%d are draining", draining))
	}
	if len(why) == 0 {
		why = append(why, "none of them holds the model, or its breaker is open on each that does")
	}
	return fmt.Sprintf("%s: of %d connected endpoints none takes the call: %s", Name, len(p.table.Ready()), strings.Join(why, ", "))
}

// some joins a few of a list.
func some(list []string) string {
	const most = 3
	if len(list) > most {
		return strings.Join(list[:most], "; ") + "; ..."
	}
	return strings.Join(list, "; ")
}

func describe(e *picker.Endpoint) string {
	s := e.ID() + " is " + e.Breaker().State().String()
	if last, ok := e.Breaker().Last(); ok {
		s += ": " + last.Reason.String()
	}
	return s
}

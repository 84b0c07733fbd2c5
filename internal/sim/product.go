package sim

import (
	"strings"
	"time"

	"github.com/mlbalancer/mlbalancer/breaker"
	"github.com/mlbalancer/mlbalancer/picker"
)

const (
	// productPrefix is what the names of our policies begin with.
	productPrefix = "model_aware/"
	// watchEvery is how often the policy looks after what time alone changes, as the gRPC policy does.
	watchEvery = 100 * time.Millisecond
	// epoch is time 0 on the picker's clock, for which small numbers are never a time.
	epoch = int64(1) << 60
)

// productOptions are what can be switched on and off behind a name of ours.
type productOptions struct {
	retry     bool
	noBreaker bool
}

// productKinds returns one kind for each strategy that is registered.
func productKinds() []Kind {
	var all []Kind
	for _, name := range picker.Strategies() {
		k, _ := productKind(name)
		all = append(all, k)
	}
	return all
}

// productKind returns the kind of a strategy's name, with or without the prefix and options.
func productKind(name string) (Kind, bool) {
	strategy := strings.TrimPrefix(name, productPrefix)
	var o productOptions
	suffixes := ""
	for {
		switch {
		case strings.HasSuffix(strategy, "+retry") && !o.retry:
			o.retry, strategy, suffixes = true, strings.TrimSuffix(strategy, "+retry"), "+retry"+suffixes
			continue
		case strings.HasSuffix(strategy, "-breaker") && !o.noBreaker:
			o.noBreaker, strategy, suffixes = true, strings.TrimSuffix(strategy, "-breaker"), "-breaker"+suffixes
			continue
		}
		break
	}
	options := picker.Defaults(strategy)
	if options == nil {
		return Kind{}, false
	}
	return Kind{
		Name: productPrefix + strategy + suffixes, Role: Ours, About: "the decision core with the strategy " + strategy,
		hears: true, ticks: watchEvery, build: func(f *Fleet) Policy { return newProduct(f, options, o) },
	}, true
}

// product is the decision core of the gRPC policy, for each client on its own.
type product struct {
	f        *Fleet
	options  productOptions
	plan     picker.Options
	clients  []productClient
	attempts []*picker.Attempt // by Call.tag
	free     []int32
	query    picker.Query
	avoid    []*picker.Endpoint
}

// productClient is one client.
type productClient struct {
	endpoints []*picker.Endpoint // by server
	guard     *picker.Guard
	table     *picker.Table
	rand      func() uint64
	budget    retryBudget
}

func newProduct(f *Fleet, o picker.Options, options productOptions) Policy {
	p := &product{f: f, plan: o, options: options, clients: make([]productClient, f.Clients)}
	for i := range p.clients {
		c := &p.clients[i]
		c.rand = source(f.seed, forPolicy, 1+i).Uint64
		c.guard = picker.NewGuard(options.breaker(), c.rand)
		c.guard.SetPanicThreshold(panicThreshold)
		c.guard.SetPerModel(!options.noBreaker)
		for _, host := range f.hosts {
			e := picker.NewEndpoint(host)
			e.Breaker().Repeatable()
			c.endpoints = append(c.endpoints, e)
		}
	}
	p.Changed(0)
	return p
}

// panicThreshold is that of the gRPC policy by default.
const panicThreshold = 0.5

// slowStart is how long a server that joins gets less than its share, as the gRPC policy has it by default.
const slowStart = 30 * time.Second

// breaker returns the breakers' rules that the gRPC policy has by default. Without breakers, none ever opens.
func (o productOptions) breaker() breaker.Config {
	c := breaker.DefaultConfig()
	c.RampFor = time.Duration(c.OpenFor)
	if o.noBreaker {
		c.MaxEjectionPercent = 0
	}
	return c
}

// clock returns a time on the picker's clock.
func clock(t time.Duration) int64 { return epoch + int64(t) }

// Changed implements Policy.
func (p *product) Changed(now time.Duration) {
	for i := range p.clients {
		c := &p.clients[i]
		var breakers []*breaker.Breaker
		members := make([]picker.Member, len(p.f.servers)) // those that are down are holes: indices are those of servers
		status := make([]picker.Status, len(p.f.servers))
		for _, j := range p.f.members {
			e := c.endpoints[j]
			members[j] = picker.Member{Endpoint: e, Weight: 1}
			status[j] = picker.Ready
			if now > 0 && c.table.Member(int(j)).Endpoint == nil {
				e.Reconnected(clock(now))
				e.SlowStart(clock(now), slowStart)
			}
			breakers = append(breakers, e.Breaker())
		}
		plan := picker.Plan{Inference: p.plan, Update: p.plan, Guard: c.guard}
		c.guard.Group.Set(clock(now), breakers)
		c.table = picker.NewTable(c.table, plan, members, status, c.rand)
	}
}

// Place implements Policy.
func (p *product) Place(now time.Duration, c *Call) int {
	client := &p.clients[c.Client]
	p.avoid = p.avoid[:0]
	for _, i := range c.Tried[:c.Attempts] {
		p.avoid = append(p.avoid, client.endpoints[i])
	}
	if c.Attempts == 0 {
		client.budget.deposit(now)
	}
	p.query = picker.Query{
		Request: picker.Request{ModelID: p.f.names[c.Model]}, Key: p.f.keys[c.Model], Now: clock(now),
		Avoid: p.avoid, Fresh: c.Attempts > 0,
	}
	tag := p.take()
	choice := client.table.Place(&p.query, clock(c.Deadline), p.attempts[tag])
	if choice.Index < 0 {
		p.free = append(p.free, tag)
		return -1
	}
	c.tag = tag
	return choice.Index
}

// take returns the index of an attempt that is not in use.
func (p *product) take() int32 {
	if n := len(p.free); n > 0 {
		tag := p.free[n-1]
		p.free = p.free[:n-1]
		return tag
	}
	p.attempts = append(p.attempts, &picker.Attempt{})
	return int32(len(p.attempts) - 1)
}

// Done implements Policy.
func (p *product) Done(now time.Duration, c *Call, o Outcome) {
	a := p.attempts[c.tag]
	a.End(clock(now), judge(a, now, o), 0, true)
	a.Clear()
	p.free = append(p.free, c.tag)
}

// judge returns what the picker is told of an outcome. A deadline that has passed is the endpoint's failure only if it had the
// time after which it is slow.
func judge(a *picker.Attempt, now time.Duration, o Outcome) picker.Outcome {
	switch o {
	case OutcomeSuccess:
		return picker.Success
	case OutcomeModelFault:
		return picker.ModelFault
	case OutcomeExpired:
		if a.Took(clock(now)) < a.Slow() {
			return picker.Cancelled
		}
	}
	return picker.Failure
}

// Again implements Policy.
func (p *product) Again(now time.Duration, c *Call, _ Outcome) bool {
	return p.options.retry && p.clients[c.Client].budget.withdraw(now)
}

// Tick implements Policy.
func (p *product) Tick(now time.Duration) {
	for i := range p.clients {
		c := &p.clients[i]
		c.guard.Watch(c.table, clock(now))
	}
}

// reportSource is the number of the source that reports come from, with responses or without: whichever is the last one holds.
const reportSource = 0

// Report implements Policy.
func (p *product) Report(now time.Duration, client, server int, r *Report) {
	c := &p.clients[client]
	c.guard.Report(c.endpoints[server], reportSource, clock(now), &r.Report)
}

// retryBudget allows further attempts for a share of the calls of the last ten seconds, or for some each second if that is more.
type retryBudget struct {
	seconds [10]struct{ calls, spent int }
	last    int
}

const (
	retryRatio = 0.2
	retryFloor = 10 // per second
)

// at makes the second that now is in the last one, and returns its place.
func (b *retryBudget) at(now time.Duration) int {
	second := int(now / time.Second)
	for n := min(second-b.last, len(b.seconds)); n > 0; n-- {
		b.seconds[(second-n+1)%len(b.seconds)] = struct{ calls, spent int }{}
	}
	b.last = second
	return second % len(b.seconds)
}

func (b *retryBudget) deposit(now time.Duration) { b.seconds[b.at(now)].calls++ }

func (b *retryBudget) withdraw(now time.Duration) bool {
	at, calls, spent := b.at(now), 0, 0
	for _, s := range b.seconds {
		calls, spent = calls+s.calls, spent+s.spent
	}
	if float64(spent+1) > max(retryRatio*float64(calls), retryFloor*float64(len(b.seconds))) {
		return false
	}
	b.seconds[at].spent++
	return true
}

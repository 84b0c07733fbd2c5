package breaker

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The model is the package without its tricks: one goroutine, plain fields, lists instead of totals, and no arithmetic modulo anything. It
// shares the constants and the arithmetic of the sequential test with the real one.
type model struct {
	config  Config
	rand    func() uint64
	members []*modelBreaker
	open    int
	waiting bool
	freed   bool
	ticked  int64
	events  []Event
}

type modelBreaker struct {
	m    *model
	name string

	state           State
	epoch           int
	exp             int
	opened, ramping bool
	until           int64 // open
	period          int64 // half-open: when the period of grants began
	grants, wins    int
	closedAt        int64
	leases          [maxProbes]modelLease

	step      int64 // of the window
	votes     []modelVote
	successes int // ever
	failures  int // ever
	row       int
	late      int // in flight, of this epoch
	waiting   bool

	rest                         float64
	suspect                      bool
	suspectFails, suspectOKs     int
	groupSuccesses, groupFailing int

	status                      Status
	watchEpoch                  int
	quietSince                  int64
	slowest                     time.Duration
	seenSuccesses, seenFailures int
	recent, recentFailing       float64
	inFlight                    []*modelCall
}

type modelLease struct {
	held  bool
	epoch int
	end   int64 // in units of 2^10 ns
}

type modelVote struct {
	step             int64
	ok, slow, failed int
	both             int
}

type modelCall struct {
	epoch int
	probe bool
	slot  int
	lease modelLease
	due   int64 // in stamps; 0 if not watched
	slow  time.Duration
	late  bool
}

func (m *model) limit() int { return len(m.members) * m.config.MaxEjectionPercent / 100 }

func (b *modelBreaker) log(from State, at int64, openFor time.Duration, r Reason) {
	b.m.events = append(b.m.events, Event{Endpoint: b.name, From: from, To: b.state, At: at, OpenFor: openFor, Reason: r})
}

func floorUnit(t int64) int64 { return t / unit * unit }

func (b *modelBreaker) toOpen(now int64, r Reason) {
	from := b.state
	if from == HalfOpen || b.opened {
		b.exp++
	}
	for b.exp > 0 && time.Duration(b.m.config.OpenFor)<<(b.exp-1) >= time.Duration(b.m.config.MaxOpenFor) {
		b.exp--
	}
	base := min(time.Duration(b.m.config.OpenFor)<<b.exp, time.Duration(b.m.config.MaxOpenFor))
	d := min(time.Duration(float64(base)*(1+float64(b.m.rand()>>11)/(1<<54))), time.Duration(b.m.config.MaxOpenFor))
	b.state, b.opened, b.ramping = Open, false, false
	b.epoch++
	b.until = (now + int64(d) + unit - 1) / unit * unit
	b.log(from, now, d, r)
}

func (b *modelBreaker) toClosed(now int64, r Reason) {
	from := b.state
	b.state, b.opened, b.ramping = Closed, true, b.m.config.RampFor > 0
	b.epoch++
	b.closedAt = floorUnit(now)
	b.votes, b.row, b.late, b.suspect = nil, 0, 0, false
	b.m.open--
	b.m.freed = true
	b.log(from, now, 0, r)
}

func (b *modelBreaker) expire(now int64) {
	if b.state == HalfOpen && b.expired(now) {
		b.toOpen(now, Reason{Rule: ProbeExpired, Within: minLease})
	}
}

func (b *modelBreaker) expired(now int64) bool {
	return slices.ContainsFunc(b.leases[:], func(l modelLease) bool { return l.held && l.epoch == b.epoch && now>>leaseUnit >= l.end })
}

func (b *modelBreaker) mayGrant(now int64) bool {
	return b.grants == 0 || now >= b.period+int64(b.m.config.OpenFor) || b.grants < b.m.config.HalfOpenProbes
}

func (b *modelBreaker) freeSlot(now int64) int {
	return slices.IndexFunc(b.leases[:b.m.config.HalfOpenProbes], func(l modelLease) bool { return !l.held || now>>leaseUnit >= l.end })
}

func (b *modelBreaker) allow(now int64, slow time.Duration) *modelCall {
	b.expire(now)
	if b.state == Open && now >= b.until {
		b.state = HalfOpen
		b.epoch++
		b.grants, b.wins, b.period = 0, 0, floorUnit(now)
		b.log(Open, now, 0, Reason{Rule: Due})
	}
	c := &modelCall{epoch: b.epoch, slow: slow}
	switch b.state {
	case Closed:
		if slow > 0 {
			c.due = (now+int64(slow))/unit + 1
			b.inFlight = append(b.inFlight, c)
		}
		return c
	case HalfOpen:
		slot := b.freeSlot(now)
		if !b.mayGrant(now) || slot < 0 {
			return nil
		}
		if b.grants == 0 || now >= b.period+int64(b.m.config.OpenFor) {
			b.grants, b.period = 0, floorUnit(now)
		}
		b.grants++
		c.probe, c.slot = true, slot
		c.lease = modelLease{true, b.epoch, (now+int64(max(slow, minLease)))>>leaseUnit | 1}
		b.leases[slot] = c.lease
		return c
	}
	return nil
}

func (b *modelBreaker) done(c *modelCall, now int64, o Outcome) {
	if c.probe {
		if b.leases[c.slot] == c.lease {
			b.judge(c, now, o)
			if b.leases[c.slot] == c.lease {
				b.leases[c.slot] = modelLease{}
			}
		}
		b.m.freed = true
		return
	}
	b.inFlight = slices.DeleteFunc(b.inFlight, func(other *modelCall) bool { return other == c })
	if c.epoch != b.epoch {
		return
	}
	if c.late {
		b.late--
	}
	v := modelVote{step: b.step}
	switch {
	case o == Success && !c.late && (c.due == 0 || now/unit < c.due):
		v.ok = 1
		b.success()
	case o == Success, o == Slow:
		if !c.late {
			v.slow = 1
		}
		b.success()
	case o == Failure:
		b.roll(now)
		v.step, v.failed = b.step, 1
		if c.late {
			v.both = 1
		}
		b.votes = append(b.votes, v)
		b.fail(now)
		return
	case o == Unsent && c.late:
		v.slow = -1
	}
	b.votes = append(b.votes, v)
}

func (b *modelBreaker) judge(c *modelCall, now int64, o Outcome) {
	b.expire(now)
	if b.state != HalfOpen || b.epoch != c.epoch {
		return
	}
	switch o {
	case Success, Slow, Failure:
		if o == Failure || o == Slow && b.m.config.SlowCall.Ratio > 0 {
			b.toOpen(now, Reason{Rule: ProbeFailed})
			return
		}
		if b.wins++; b.wins >= b.m.config.HalfOpenProbes {
			b.toClosed(now, Reason{Rule: Probed, Count: b.wins})
		}
	case Unsent:
		b.grants = max(0, b.grants-1)
	}
}

func (b *modelBreaker) success() {
	b.successes++
	b.row = 0
	b.suspectOKs++
}

func (b *modelBreaker) steps() (length, n int64) {
	window := int64(b.m.config.Window)
	for length = 1; length*2 <= (window-1)/minSteps; length *= 2 {
	}
	return length, (window + length - 1) / length
}

func (b *modelBreaker) roll(now int64) {
	length, _ := b.steps()
	b.step = max(b.step, now/length)
}

func (b *modelBreaker) counts() (c counts) {
	_, n := b.steps()
	slow := 0
	for _, v := range b.votes {
		if v.step > b.step-n {
			c.ok += uint64(v.ok)
			slow += v.slow
			c.failed += uint64(v.failed)
			c.both += uint64(v.both)
		}
	}
	c.slow = uint64(max(0, slow))
	return c
}

func (b *modelBreaker) fail(now int64) {
	b.failures++
	b.row++
	if b.m.config.Sequential && b.rest > 0 {
		if !b.suspect || weightsAt(b.rest).sum(float64(b.suspectFails), float64(b.suspectOKs)) <= 0 {
			b.suspect, b.suspectFails, b.suspectOKs = true, 0, 0
			b.groupSuccesses, b.groupFailing = b.m.totals()
		}
		b.suspectFails++
	}
	if r, bad := b.failing(); bad {
		if b.m.waiting || b.m.open >= b.m.limit() {
			b.waiting, b.m.waiting = true, true
			return
		}
		b.m.open++
		b.toOpen(now, r)
	}
}

func (m *model) totals() (successes, failures int) {
	for _, b := range m.members {
		successes, failures = successes+b.successes, failures+b.failures
	}
	return successes, failures
}

func (b *modelBreaker) failing() (Reason, bool) {
	config := b.m.config
	if config.ConsecutiveFailures > 0 && b.row >= config.ConsecutiveFailures {
		return Reason{Rule: Consecutive, Count: b.row}, true
	}
	c := b.counts()
	if config.FailureRatio > 0 && c.calls() >= config.MinRequests && float64(c.failed) >= config.FailureRatio*float64(c.calls()) {
		return Reason{Rule: FailureRatio, Count: int(c.failed), Calls: c.calls(), Within: time.Duration(config.Window)}, true
	}
	if config.Sequential && b.rest > 0 && b.suspect {
		fails, oks := float64(b.suspectFails), float64(b.suspectOKs)
		successes, failures := b.m.totals()
		restOKs, restFails := float64(successes-b.groupSuccesses)-oks, float64(failures-b.groupFailing)-(fails-1)
		if weightsAt(b.rest).sum(fails, oks) >= takeForBad && weightsAt(b.rest).sum(restFails, restOKs) <= -takeForHealthy {
			rate := max(b.rest, restFails/(restFails+restOKs))
			sum := weightsAt(rate).sum(fails, oks)
			return Reason{Rule: Sequential, Count: int(fails), Calls: int(fails + oks), Rate: rate, LLR: sum}, sum >= takeForBad
		}
	}
	return Reason{}, false
}

func (m *model) tick(now int64) bool {
	for _, b := range m.members {
		b.look(now)
	}
	m.eject(now)
	calls := 0.0
	for _, b := range m.members {
		n, failing := float64(b.successes-b.seenSuccesses+b.failures-b.seenFailures), float64(b.failures-b.seenFailures)
		b.seenSuccesses, b.seenFailures = b.successes, b.failures
		b.recent, b.recentFailing = b.recent+n, b.recentFailing+failing
		calls += n
	}
	keep := math.Exp(-float64(now-m.ticked)/float64(restMemory) - calls/restCalls)
	m.ticked = now
	all, failing := 0.0, 0.0
	for _, b := range m.members {
		b.recent, b.recentFailing = b.recent*keep, b.recentFailing*keep
		all, failing = all+b.recent, failing+b.recentFailing
	}
	for _, b := range m.members {
		b.rest = max(healthyRate, (max(0, failing-b.recentFailing)+priorCalls*healthyRate)/(max(0, all-b.recent)+priorCalls))
		if b.rest > sickRate || len(m.members) < 2 {
			b.rest = 0
		}
	}
	freed := m.freed
	m.freed = false
	for _, b := range m.members {
		status := b.statusAt(now)
		freed = freed || b.status == Refusing && status != Refusing
		b.status = status
	}
	return freed
}

func (b *modelBreaker) look(now int64) {
	b.expire(now)
	b.roll(now)
	if b.state != Closed {
		return
	}
	if b.watchEpoch != b.epoch || b.seenSuccesses != b.successes {
		b.watchEpoch, b.quietSince = b.epoch, now
	}
	if b.late == 0 {
		b.slowest = 0
	}
	b.inFlight = slices.DeleteFunc(b.inFlight, func(c *modelCall) bool {
		if now/unit < c.due {
			return false
		}
		c.late = true
		if c.epoch == b.epoch {
			b.late++
			b.votes = append(b.votes, modelVote{step: b.step, slow: 1})
			b.slowest = max(b.slowest, min((c.slow>>slowUnit+1), ticketLow)<<slowUnit)
		}
		return true
	})
	closedFor := time.Duration(now - b.closedAt)
	if b.opened || b.ramping {
		proven := 0
		for _, v := range b.votes {
			proven += v.ok
		}
		if closedFor >= b.m.config.RampFor {
			b.ramping = false
		}
		base := min(time.Duration(b.m.config.OpenFor)<<b.exp, time.Duration(b.m.config.MaxOpenFor))
		if proven >= b.m.config.MinRequests && closedFor >= max(time.Duration(b.m.config.Window), base) {
			b.opened, b.exp = false, 0
		}
	}
}

func (m *model) eject(now int64) {
	waiting := m.waiting
	m.waiting = false
	type candidate struct {
		b   *modelBreaker
		r   Reason
		bad float64
	}
	var candidates []candidate
	for _, b := range m.members {
		wanted := waiting && b.waiting
		if waiting {
			b.waiting = false
		}
		if b.state != Closed {
			continue
		}
		n, quiet := b.late+b.row, time.Duration(now-b.quietSince)
		r, bad := Reason{Rule: Hung, Count: n, Within: quiet},
			b.late > 0 && m.config.ConsecutiveFailures > 0 && n >= m.config.ConsecutiveFailures && quiet >= b.slowest
		if !bad {
			r, bad = b.tooSlow()
		}
		if !bad && wanted {
			r, bad = b.failing()
		}
		if bad {
			candidates = append(candidates, candidate{b, r, b.counts().bad()})
		}
	}
	slices.SortStableFunc(candidates, func(x, y candidate) int {
		switch {
		case x.bad > y.bad:
			return -1
		case x.bad < y.bad:
			return 1
		}
		return 0
	})
	for _, c := range candidates {
		if m.open >= m.limit() {
			c.b.waiting, m.waiting = true, true
			continue
		}
		m.open++
		c.b.toOpen(now, c.r)
	}
}

func (b *modelBreaker) tooSlow() (Reason, bool) {
	config, c := b.m.config, b.counts()
	if config.SlowCall.Ratio == 0 || c.slow == 0 || c.calls() < config.MinRequests || float64(c.slow) < config.SlowCall.Ratio*float64(c.calls()) {
		return Reason{}, false
	}
	slow, calls := 0, 0
	for _, other := range b.m.members {
		if other != b && other.state == Closed {
			slow, calls = slow+int(other.counts().slow), calls+other.counts().calls()
		}
	}
	rest := ratio(slow, calls)
	if calls >= config.MinRequests && rest >= config.SlowCall.Ratio/2 {
		return Reason{}, false
	}
	return Reason{Rule: SlowRatio, Count: int(c.slow), Calls: c.calls(), Within: time.Duration(config.Window), Rate: rest}, true
}

func (b *modelBreaker) statusAt(now int64) Status {
	switch {
	case b.state == Closed:
		return Usable
	case b.state == Open && now >= b.until:
		return Probing
	case b.state == HalfOpen && !b.expired(now) && b.mayGrant(now) && b.freeSlot(now) >= 0:
		return Probing
	}
	return Refusing
}

func (b *modelBreaker) next(now int64) int64 {
	next := int64(math.MaxInt64)
	sooner := func(t int64) {
		if t > now {
			next = min(next, t)
		}
	}
	switch b.state {
	case Open:
		sooner(b.until)
	case HalfOpen:
		if b.grants >= b.m.config.HalfOpenProbes {
			sooner(b.period + int64(b.m.config.OpenFor))
		}
		for _, l := range b.leases {
			if !l.held {
				continue
			}
			end := now + (l.end-now>>leaseUnit)<<leaseUnit
			if l.epoch == b.epoch {
				end = max(end, now+1)
			}
			sooner(end)
		}
	}
	return next
}

func (b *modelBreaker) ramp(now int64) float64 {
	switch done := time.Duration(now - b.closedAt); {
	case b.state != Closed:
		return minRamp
	case b.ramping && done < b.m.config.RampFor:
		return max(minRamp, float64(done)/float64(b.m.config.RampFor))
	}
	return 1
}

// schedule runs a group and its model side by side.
type schedule struct {
	t     *testing.T
	real  *Group
	model *model
	pairs []*scheduled
	now   int64
	at    int
}

type scheduled struct {
	real  *Breaker
	model *modelBreaker
	calls []scheduledCall
}

type scheduledCall struct {
	permit Permit
	model  *modelCall
}

func newSchedule(t *testing.T, seed uint64, n int, c Config) *schedule {
	require.NoError(t, c.Validate())
	s := &schedule{t: t, now: int64(time.Hour)}
	s.real = NewGroup(c, rand.New(rand.NewPCG(seed, 6)).Uint64)
	s.model = &model{config: c, rand: rand.New(rand.NewPCG(seed, 6)).Uint64}
	var members []*Breaker
	for i := range n {
		name := fmt.Sprint("e", i)
		pair := &scheduled{real: New(name), model: &modelBreaker{m: s.model, name: name, quietSince: s.now}}
		members = append(members, pair.real)
		s.model.members = append(s.model.members, pair.model)
		s.pairs = append(s.pairs, pair)
	}
	s.real.Set(s.now, members)
	s.model.ticked = 0
	s.tick()
	return s
}

// maxCalls bounds the calls of a breaker in flight, since the real one watches no more than 28 of one goroutine.
const maxCalls = 28

func (s *schedule) allow(i int, slow time.Duration) {
	x := s.pairs[i]
	if len(x.calls) == maxCalls {
		return
	}
	p, ok := x.real.Allow(s.now, slow)
	c := x.model.allow(s.now, slow)
	require.Equal(s.t, c != nil, ok, "step %d: allow %d", s.at, i)
	if ok {
		require.Equal(s.t, c.probe, p.Probe())
		x.calls = append(x.calls, scheduledCall{p, c})
	}
	s.check()
}

func (s *schedule) done(i, call int, o Outcome) {
	x := s.pairs[i]
	if len(x.calls) == 0 {
		return
	}
	call %= len(x.calls)
	c := x.calls[call]
	x.calls = slices.Delete(x.calls, call, call+1)
	x.real.Done(c.permit, s.now, o)
	x.model.done(c.model, s.now, o)
	s.check()
}

func (s *schedule) tick() {
	freed := s.real.Tick(s.now)
	require.Equal(s.t, s.model.tick(s.now), freed, "step %d: tick", s.at)
	s.check()
}

func (s *schedule) check() {
	s.at++
	s.real.Drain(func(e Event) {
		require.NotEmpty(s.t, s.model.events, "step %d: %v", s.at, e)
		require.Equal(s.t, s.model.events[0], e, "step %d", s.at)
		s.model.events = s.model.events[1:]
	})
	require.Empty(s.t, s.model.events, "step %d", s.at)
	if open, limit := s.real.Open(); open != s.model.open || limit != s.model.limit() {
		s.t.Fatalf("step %d: %d of %d open, want %d of %d", s.at, open, limit, s.model.open, s.model.limit())
	}
	for _, x := range s.pairs {
		want := readout{State: x.model.state, Status: x.model.statusAt(s.now), next: x.model.next(s.now), ramp: x.model.ramp(s.now)}
		if x.model.state == Closed {
			c := x.model.counts()
			want.Counts = Counts{Calls: c.calls(), Failures: int(c.failed), Slow: int(c.slow), Late: x.model.late, Waiting: x.model.waiting}
		}
		got := readout{x.real.State(), x.real.Status(s.now), x.real.Next(s.now), x.real.Ramp(s.now), x.real.Counts()}
		if got != want {
			s.t.Fatalf("step %d, %s: got %+v, want %+v", s.at, x.model.name, got, want)
		}
	}
}

// readout is all that can be seen of a breaker.
type readout struct {
	State
	Status
	next int64
	ramp float64
	Counts
}

// play turns bytes into a schedule: how many breakers, how they are configured, and what is done when.
func play(t *testing.T, data []byte) *schedule {
	next := func() int {
		if len(data) == 0 {
			return 0
		}
		b := data[0]
		data = data[1:]
		return int(b)
	}
	c := DefaultConfig()
	n := 1 + next()%4
	c.ConsecutiveFailures = next() % 8
	c.FailureRatio = []float64{0, 0.3, 0.5, 1}[next()%4]
	c.MinRequests = 1 + next()%20
	c.Window = Duration([]time.Duration{100 * time.Millisecond, 2 * time.Second, 30 * time.Second}[next()%3])
	c.SlowCall.Ratio = []float64{0, 0.3, 0.5, 1}[next()%4]
	c.Sequential = next()%2 == 0
	c.OpenFor = Duration([]time.Duration{time.Millisecond, 300 * time.Millisecond, time.Second}[next()%3])
	c.MaxOpenFor = Duration([]time.Duration{time.Second, 7 * time.Second, 300 * time.Second}[next()%3])
	c.HalfOpenProbes = 1 + next()%maxProbes
	c.MaxEjectionPercent = []int{0, 34, 50, 67, 100, 100, 100, 100}[next()%8]
	c.RampFor = []time.Duration{0, time.Second, 30 * time.Second}[next()%3]
	s := newSchedule(t, uint64(next()), n, c)

	slow := []time.Duration{0, 0, 50 * time.Millisecond, 200 * time.Millisecond, time.Second, 3 * time.Second, 5 * time.Minute}
	waits := []time.Duration{0, 1, time.Microsecond, 500 * time.Microsecond, 5 * time.Millisecond, 40 * time.Millisecond, 300 * time.Millisecond, 2 * time.Second,
		20 * time.Second}
	for len(data) > 0 {
		what := next()
		i := what / 8 % n
		switch what % 8 {
		case 0, 1:
			s.allow(i, slow[next()%len(slow)])
		case 2, 3:
			s.done(i, next(), []Outcome{Success, Failure, Success, Failure, Failure, Slow, Unsent, Neutral}[next()%8])
		case 4: // several calls that end at once
			k, o := 1+next()%12, []Outcome{Success, Failure, Failure, Slow}[next()%4]
			if o == Success {
				k *= 8
			}
			for range k {
				s.allow(i, time.Second)
				s.done(i, len(s.pairs[i].calls)-1, o)
			}
		case 5:
			s.now += int64(waits[next()%len(waits)])
			s.check()
		case 6:
			s.tick()
		case 7:
			s.now = min(s.now+int64(time.Minute), s.pairs[i].real.Next(s.now))
			s.check()
		}
	}
	return s
}

func TestModel(t *testing.T) {
	var rules [OverCap + 1]int
	const schedules, length = 200, 600
	for seed := range schedules {
		rng := rand.New(rand.NewPCG(uint64(seed), 7))
		data := make([]byte, length)
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		s := play(t, data)
		for _, e := range s.real.all() {
			rules[e.Reason.Rule]++
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	for r := Consecutive; r < OverCap; r++ {
		t.Logf("%v: %d", r, rules[r])
		require.GreaterOrEqual(t, rules[r], 5, "%v hardly ever happened", r)
	}
}

// all returns the events that the log still holds.
func (g *Group) all() (events []Event) {
	for i := range g.events.slots {
		if e := g.events.slots[i].Load(); e != nil {
			events = append(events, e.Event)
		}
	}
	return events
}

func FuzzBreaker(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("two breakers, some rules and what they make of it"))
	f.Add([]byte{1, 5, 2, 9, 2, 2, 0, 2, 2, 2, 4, 0, 0, 4, 9, 1, 6, 7, 4, 3, 0, 6, 7, 4, 9, 1})
	f.Add([]byte{3, 3, 0, 0, 0, 0, 1, 0, 0, 0, 2, 1, 1, 0, 2, 0, 2, 0, 2, 5, 6, 6, 5, 6, 6, 7, 6, 0, 3, 7, 6, 2, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 2000 {
			return
		}
		play(t, data)
	})
}

package breaker

import (
	"math"
	"slices"
	"time"
)

// The model is the package without its tricks: one goroutine, plain fields, lists instead of totals, and no arithmetic modulo
// anything. It shares the constants and the arithmetic of the sequential test with the real one.
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
	end   int64
	early int64 // how much earlier the call is slow
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

func (b *modelBreaker) reset(now int64) {
	from := b.state
	b.state, b.opened, b.ramping, b.exp, b.waiting = Closed, false, false, 0, false
	b.epoch++
	b.closedAt = floorUnit(now)
	b.votes, b.row, b.late, b.suspect = nil, 0, 0, false
	b.m.freed = true
	if from != Closed {
		b.m.open--
		b.log(from, now, 0, Reason{Rule: WasReset})
	}
}

func (b *modelBreaker) expire(now int64) {
	if b.state == HalfOpen && b.expired(now) {
		b.toOpen(now, Reason{Rule: ProbeExpired, Within: minLease})
	}
}

func (b *modelBreaker) expired(now int64) bool {
	return slices.ContainsFunc(b.leases[:], func(l modelLease) bool { return l.held && l.epoch == b.epoch && now >= l.end })
}

func (b *modelBreaker) mayGrant(now int64) bool {
	return b.grants == 0 || now >= b.period+int64(b.m.config.OpenFor) || b.grants < b.m.config.HalfOpenProbes
}

func (b *modelBreaker) freeSlot(now int64) int {
	return slices.IndexFunc(b.leases[:b.m.config.HalfOpenProbes], func(l modelLease) bool { return !l.held || now >= l.end })
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
		length := int64(max(slow, minLease))
		c.lease = modelLease{true, b.epoch, (now + length + unit - 1) / unit * unit, 0}
		if slow > 0 {
			c.lease.early = (length - int64(slow)) >> earlyUnit << earlyUnit
		}
		b.leases[slot] = c.lease
		return c
	}
	return nil
}

func (b *modelBreaker) done(c *modelCall, now int64, o Outcome) {
	if c.probe {
		if b.leases[c.slot] == c.lease {
			if o == Success && now > c.lease.end-c.lease.early {
				o = Slow
			}
			b.judge(c, now, o)
			if b.leases[c.slot] == c.lease {
				b.leases[c.slot] = modelLease{}
			}
		}
		b.m.freed = b.m.freed || b.state == HalfOpen
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
	stalled := now-m.ticked > int64(stalledFor)
	for _, b := range m.members {
		b.look(now, stalled)
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

func (b *modelBreaker) look(now int64, stalled bool) {
	b.expire(now)
	b.roll(now)
	if b.state != Closed {
		return
	}
	if stalled || b.watchEpoch != b.epoch || b.seenSuccesses != b.successes {
		b.watchEpoch, b.quietSince = b.epoch, now
	}
	if b.late == 0 {
		b.slowest = 0
	}
	b.inFlight = slices.DeleteFunc(b.inFlight, func(c *modelCall) bool {
		if stalled || now/unit < c.due {
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
	if config.SlowCall.Ratio == 0 || c.slow == 0 || c.calls() < config.MinRequests ||
		float64(c.slow) < config.SlowCall.Ratio*float64(c.calls()) {
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
			end := l.end
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

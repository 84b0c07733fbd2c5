package sim

import "time"

// small is a fleet that is simulated in milliseconds.
func small() Scenario {
	s := Defaults()
	s.ID, s.Servers, s.Slots, s.Models, s.Rho = "small", 4, 2, 6, .5
	s.From, s.To = 20*time.Second, 60*time.Second
	return s
}

// machine returns a fleet of one server that nobody calls, for tests that drive it themselves.
func machine(slots int) *Fleet {
	sc := small()
	sc.Servers, sc.Slots, sc.Workers = 1, slots, 1
	return newFleet(&sc, Kind{Name: "test", build: func(f *Fleet) Policy { return &fixed{} }}, 1)
}

// fixed is a policy that sends all calls to the first server, and remembers how they ended.
type fixed struct {
	quiet
	ended []Outcome
}

// Place implements Policy.
func (*fixed) Place(time.Duration, *Call) int { return 0 }

// Done implements Policy.
func (p *fixed) Done(_ time.Duration, _ *Call, o Outcome) { p.ended = append(p.ended, o) }

// call submits a call for a model at now.
func (f *Fleet) call(now time.Duration, model int32, work time.Duration) *Call {
	f.settle(now)
	c := f.newCall()
	c.Model, c.Work, c.Start, c.Deadline = model, work, now, now+f.Deadline
	f.place(c)
	return c
}

// settle lets everything happen that is due by now.
func (f *Fleet) settle(now time.Duration) {
	for at, ok := f.agenda.next(); ok && at <= now; at, ok = f.agenda.next() {
		f.happen(f.agenda.pop())
	}
	f.now = now
}

package sim

// change lets go wrong what the scenario says.
func (f *Fleet) change() {
	membership := false
	for _, c := range f.Changes {
		for n := range c.Count {
			s := f.servers[n]
			switch c.Kind {
			case Slow:
				s.slow = c.Factor
			case BlackHole:
				s.hollow = true
			case BrokenModel:
				f.servers[f.homeOfHottest()].broken = 0
			case Join:
				f.servers[f.Servers+n].up, membership = true, true
			case Leave:
				s.up, membership = false, true
			}
		}
	}
	if membership {
		f.enroll()
		f.policy.Changed(f.now)
	}
}

// homeOfHottest returns the server that has been sent most calls for the most popular model.
func (f *Fleet) homeOfHottest() int {
	best := 0
	for i, n := range f.hottest {
		if n > f.hottest[best] {
			best = i
		}
	}
	return best
}

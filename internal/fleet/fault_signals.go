package fleet

import (
	"fmt"
	"time"
)

// Lie is what a signal says instead of the truth.
type Lie uint8

const (
	// Truth is no lie.
	Truth Lie = iota
	// Idle says that nothing runs or waits, and that a load could begin at once. It concerns ORCA and GPUStats.
	Idle
	// Busy says that eight requests for each worker are in work, and that the next load has to wait for ten others. It
	// concerns ORCA and GPUStats.
	Busy
	// Empty says that no model is in memory, nor on its way there. It concerns all signals; ORCA knows only that memory is free.
	Empty
)

// What a server claims that lies Busy.
const (
	busyRequests = 8 // for each worker
	busyLoads    = 10
)

// signalFaults are what a server's signals have been told to do wrong.
type signalFaults struct {
	muted, stalled Signals
	lies           [Empty + 1]Signals // those that tell each lie
	notReady       bool
	flap           time.Duration // how long each phase takes, in model time; 0 if it does not
	flapSince      time.Duration // when the first phase began
}

// ready reports whether the server's readiness has not been tampered with: it flaps in phases, the first of which is not ready.
func (f *signalFaults) ready(now time.Duration) bool {
	return !f.notReady && (f.flap == 0 || (now-f.flapSince)/f.flap%2 == 1)
}

// nextFlap returns when the next phase begins, and false if there is none.
func (f *signalFaults) nextFlap(now time.Duration) (at time.Duration, ok bool) {
	if f.flap == 0 {
		return 0, false
	}
	return f.flapSince + ((now-f.flapSince)/f.flap+1)*f.flap, true
}

// Lie makes signals say something else than the truth from now on, until another Lie. Each signal tells one lie at a time.
func (s *Server) Lie(signals Signals, lie Lie) {
	if lie > Empty {
		panic(fmt.Sprintf("fleet: Lie(%v, %d): want Truth, Idle, Busy or Empty", signals, lie))
	}
	s.upset(func(f *signalFaults) {
		for i := range f.lies {
			f.lies[i] &^= signals
		}
		f.lies[lie] |= signals
	})
}

// Stall makes signals fall silent, or ends that: streams stay open and carry nothing, who asks gets no answer until it ends, and
// calls have no trailer.
func (s *Server) Stall(signals Signals, on bool) {
	s.upset(func(f *signalFaults) { f.stalled = f.stalled.set(signals, on) })
}

// Mute makes the server answer UNIMPLEMENTED where it is asked for signals, as if it had never had them, or ends that. Streams
// end, and calls have no trailer.
func (s *Server) Mute(signals Signals, on bool) {
	s.upset(func(f *signalFaults) { f.muted = f.muted.set(signals, on) })
}

// NotReady makes the server say that it is not ready as a whole, or ends that, while it says of its models what it always did,
// and serves them: what Triton does while it loads one of them.
func (s *Server) NotReady(on bool) {
	s.upset(func(f *signalFaults) { f.notReady = on })
}

// Flap makes the server say by turns that it is not ready as a whole, and that it is, each for a period of model time. 0 ends it.
// It panics if period is below 0.
func (s *Server) Flap(period time.Duration) {
	if period < 0 {
		panic(fmt.Sprintf("fleet: Flap(%v): want a period of 0 or more", period))
	}
	s.upset(func(f *signalFaults) { f.flap, f.flapSince = period, s.gpu.now })
}

// upset changes what is wrong with the server's signals, and tells those who watch them.
func (s *Server) upset(f func(*signalFaults)) {
	s.update(func() {
		f(&s.faults.signalFaults)
		s.news = true
	})
}

// set returns the set with signals added to it, or taken out.
func (s Signals) set(signals Signals, on bool) Signals {
	if on {
		return s | signals
	}
	return s &^ signals
}

package sim

import "time"

// Urgency is how much a call matters when there is too much to do.
type Urgency uint8

// The urgencies.
const (
	Sheddable Urgency = iota
	Normal
	Critical
)

// stage is how far a call has come.
type stage uint8

const (
	stageNew     stage = iota
	stageWaiting       // for a load of its model
	stageQueued        // for a worker
	stageRunning
	stageFailing // its server fails it in a moment
	stageDone
)

// Outcome is how an attempt ended.
type Outcome uint8

// The outcomes of attempts.
const (
	// OutcomeSuccess: the server did the work.
	OutcomeSuccess Outcome = iota
	// OutcomeExpired: the caller's deadline passed.
	OutcomeExpired
	// OutcomeFailure: the server failed, whatever the model.
	OutcomeFailure
	// OutcomeModelFault: the model failed on the server.
	OutcomeModelFault
	// OutcomeRefused: the policy sent the call nowhere.
	OutcomeRefused
)

// maxAttempts is how often a call is sent at most.
const maxAttempts = 3

// Call is one request, from its arrival to its end. It is used again afterwards.
type Call struct {
	Model, Client int32
	Urgency       Urgency
	Work          time.Duration // on a worker of normal speed
	Start         time.Duration // when it arrived
	Deadline      time.Duration // when its caller gives up
	Server        int32         // where it is, or was last
	Sent          time.Duration // when it was sent there
	Attempts      int           // how often it was sent
	Tried         [maxAttempts]int32

	id         uint64 // 0 after its end
	tag        int32  // the policy's own
	stage      stage
	cold       bool // it waited for a load
	epoch      uint32
	ran        time.Duration // when it came to a worker
	queuedAt   time.Duration
	outcome    Outcome // that a failing one will have
	held       *model  // in memory, while it is queued or running; or awaited
	prev, next *Call   // in a list
}

// calls is a list of calls in order of arrival, each of which may leave it at any time.
type calls struct {
	first, last *Call
	n           int
}

func (l *calls) push(c *Call) {
	c.prev, c.next = l.last, nil
	if l.last == nil {
		l.first = c
	} else {
		l.last.next = c
	}
	l.last = c
	l.n++
}

func (l *calls) remove(c *Call) {
	if c.prev == nil {
		l.first = c.next
	} else {
		c.prev.next = c.next
	}
	if c.next == nil {
		l.last = c.prev
	} else {
		c.next.prev = c.prev
	}
	c.prev, c.next = nil, nil
	l.n--
}

// pop takes out the first one; nil if there is none.
func (l *calls) pop() *Call {
	c := l.first
	if c != nil {
		l.remove(c)
	}
	return c
}

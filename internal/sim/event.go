package sim

import "time"

// eventKind is what happens at an event.
type eventKind uint8

const (
	eventServed eventKind = iota // a call leaves its worker
	eventFailed                  // a call fails
	eventLoaded                  // the load that has a server's lane ends
	eventReport                  // a server reports
	eventTick                    // the policy does what depends on time alone
	eventChange                  // something goes wrong, or is mended
)

// event is something that will happen. One whose call has moved on meanwhile is ignored.
type event struct {
	at    time.Duration
	seq   uint64 // orders what happens at the same time
	kind  eventKind
	index int32 // of the server, or of the change
	epoch uint32
	call  *Call
}

func (e *event) before(o *event) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

// agenda is a binary heap of events.
type agenda struct {
	heap []event
	seq  uint64
}

func (a *agenda) add(e event) {
	a.seq++
	e.seq = a.seq
	a.heap = append(a.heap, e)
	h := a.heap
	i := len(h) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !e.before(&h[parent]) {
			break
		}
		h[i] = h[parent]
		i = parent
	}
	h[i] = e
}

// next returns when the first event is due, and false if there is none.
func (a *agenda) next() (time.Duration, bool) {
	if len(a.heap) == 0 {
		return 0, false
	}
	return a.heap[0].at, true
}

func (a *agenda) pop() event {
	h := a.heap
	first, last := h[0], h[len(h)-1]
	h[len(h)-1] = event{}
	h = h[:len(h)-1]
	a.heap = h
	if len(h) == 0 {
		return first
	}
	i := 0
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if child+1 < len(h) && h[child+1].before(&h[child]) {
			child++
		}
		if !h[child].before(&last) {
			break
		}
		h[i] = h[child]
		i = child
	}
	h[i] = last
	return first
}

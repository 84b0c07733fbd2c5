package sim

import "time"

// fifo is the calls in order of their deadlines, which is that of their arrival. A call that has ended stays until its turn
// comes.
type fifo struct {
	entries []deadline
	head    int
}

type deadline struct {
	call *Call
	at   time.Duration
	id   uint64
}

func (q *fifo) push(c *Call) {
	if q.head > 1024 && q.head > len(q.entries)/2 {
		q.entries = q.entries[:copy(q.entries, q.entries[q.head:])]
		q.head = 0
	}
	q.entries = append(q.entries, deadline{c, c.Deadline, c.id})
}

// next returns the deadline of the first call that has not ended, and false if there is none.
func (q *fifo) next() (time.Duration, bool) {
	for ; q.head < len(q.entries); q.head++ {
		if e := &q.entries[q.head]; e.call.id == e.id {
			return e.at, true
		}
	}
	return 0, false
}

// pop takes out the call that next has found.
func (q *fifo) pop() *Call {
	q.head++
	return q.entries[q.head-1].call
}

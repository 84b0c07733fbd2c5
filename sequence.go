package mlbalancer

import (
	"fmt"
	"hash/maphash"
	"sync"
	"time"
	"weak"

	"google.golang.org/grpc"

	"github.com/mlbalancer/mlbalancer/internal/methods"
	"github.com/mlbalancer/mlbalancer/picker"
)

const (
	// maxSequences bounds the sequences that an interceptor remembers; the one that was used least recently makes room. Each
	// takes 200 to 300 bytes, twice as many if its names are all of them unprintable: 20 MiB, and never more than 40.
	maxSequences = 1 << 16
	// sequenceIdle is how long a sequence without calls is remembered. Triton forgets one after
	// max_sequence_idle_microseconds, by default a second; hours of silence are no sequence.
	sequenceIdle = int64(10 * time.Minute)
	// maxSwept is how many idle sequences are forgotten when another call comes: more than one, so that they get fewer.
	maxSwept = 2
	// maxNamed is how much of an id and of a model's name errors show, in bytes.
	maxNamed = 48
)

// sequences remembers which server holds which sequence. Calls that belong to none do not touch it.
type sequences struct {
	seed maphash.Seed
	most int

	mu    sync.Mutex
	byKey map[sequenceKey]*sequence
	used  sequence // head of a ring: next was used last, prev least recently
}

// sequenceKey is a sequence of a model on a channel. Several channels may share an interceptor; a weak pointer keeps none of
// them. Two sequences of one hash share a server, which does them no harm.
type sequenceKey struct {
	cc   weak.Pointer[grpc.ClientConn]
	hash uint64
}

// sequence is one that is remembered. Its fields are guarded by sequences.mu, but for pin, which stays.
type sequence struct {
	key        sequenceKey
	pin        *picker.Pin
	calls      int   // under way
	at         int64 // when it was used last
	prev, next *sequence
}

func newSequences(most int) *sequences {
	s := &sequences{seed: maphash.MakeSeed(), most: most, byKey: map[sequenceKey]*sequence{}}
	s.used.prev, s.used.next = &s.used, &s.used
	return s
}

// join has a call go where the other calls of its sequence go. It returns the sequence, which the call is to leave when it has
// ended, and whether it is its last call; nil if the call belongs to none, or to one that has no other.
func (s *sequences) join(call *picker.Call, cc *grpc.ClientConn, method string, msg any) (q *sequence, last bool) {
	read, ok := methods.ReadSequence(method, msg)
	if !ok || call.Inspect != nil {
		return nil, false
	}
	m, _ := methods.Lookup(method)
	id := struct {
		model string
		methods.SequenceID
	}{m.ReadModel(msg), read.ID}
	key := sequenceKey{weak.Make(cc), maphash.Comparable(s.seed, id)}
	if q = s.enter(key, read, monotonic(), func() string { return nameSequence(id.model, id.SequenceID) }); q != nil {
		call.Pin = q.pin
	}
	return q, read.End
}

// nameSequence says in errors which sequence it is.
func nameSequence(model string, id methods.SequenceID) string {
	model = model[:min(len(model), maxNamed)]
	if id.Text != "" {
		return fmt.Sprintf("sequence %q of model %q", id.Text[:min(len(id.Text), maxNamed)], model)
	}
	return fmt.Sprintf("sequence %d of model %q", id.Number, model)
}

// enter counts a call of a sequence in. One that starts a sequence is placed anew, whatever was there under the same id.
func (s *sequences) enter(key sequenceKey, read methods.Sequence, now int64, name func() string) *sequence {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep(now)
	q := s.byKey[key]
	if q != nil && (read.Start || q.idle(now)) {
		s.forget(q)
		q = nil
	}
	if read.Start && read.End {
		return nil
	}
	if q == nil {
		if len(s.byKey) >= s.most {
			s.forget(s.used.prev)
		}
		q = &sequence{key: key, pin: picker.NewPin(name())}
		s.byKey[key] = q
	} else {
		q.unlink()
	}
	q.calls++
	s.use(q, now)
	return q
}

// leave counts a call out; over says that the sequence is.
func (s *sequences) leave(q *sequence, over bool, now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q.calls--
	switch {
	case q.next == nil: // forgotten meanwhile
	case over:
		s.forget(q)
	default:
		q.unlink()
		s.use(q, now)
	}
}

// sweep forgets what has been idle for too long. Caller must hold the lock, as for what follows.
func (s *sequences) sweep(now int64) {
	for range maxSwept {
		q := s.used.prev
		switch {
		case q == &s.used || now-q.at < sequenceIdle:
			return
		case q.idle(now):
			s.forget(q)
		default:
			q.unlink()
			s.use(q, now)
		}
	}
}

func (q *sequence) idle(now int64) bool { return q.calls == 0 && now-q.at >= sequenceIdle }

// use makes q, which is not in the ring, the one that was used last.
func (s *sequences) use(q *sequence, now int64) {
	q.at = now
	q.prev, q.next = &s.used, s.used.next
	q.prev.next, q.next.prev = q, q
}

func (s *sequences) forget(q *sequence) {
	delete(s.byKey, q.key)
	q.unlink()
}

func (q *sequence) unlink() {
	q.prev.next, q.next.prev = q.next, q.prev
	q.prev, q.next = nil, nil
}

// answered reports whether a server has answered a call for good, well or not. One that was not there, or not able to, may yet
// be asked again.
func answered(call *picker.Call, err error) bool {
	if err == nil {
		return true
	}
	_, o, _ := call.Last()
	return o == picker.ModelFault || o == picker.Misplaced || o == picker.CallerFault
}

var start = time.Now()

// monotonic returns the time since the process started, in nanoseconds.
func monotonic() int64 { return int64(time.Since(start)) }

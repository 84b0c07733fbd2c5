package breaker

import "time"

// Hang is calls of one model that are past their slow time and still in flight, while no call of another model is.
type Hang struct {
	model uint32
	Since int64         // when the first of them began, to 2 ms
	Slow  time.Duration // the longest slow time of them, rounded up by up to 67 ms
	Calls int
	Many  bool // as many as may fail in a row
	Now   int64
}

// Of reports whether it is the calls of a model that hang. model is what AllowModel was given.
func (h Hang) Of(model uint64) bool { return h.model == faultKey(model) }

// OnHang sets what Group.Tick asks when calls hang, all of them of one model: whether that is the model's matter and not the
// endpoint's. While it is the Breaker does not open for it, and what becomes of the model is for f to say. f must not call the
// Group, but may call a Pair. OnHang must be called before the Breaker is used.
func (b *Breaker) OnHang(f func(Hang) bool) { b.onHang = f }

// Stuck returns how many calls in flight hang as a model's matter: they say nothing of how busy the endpoint is for others. It
// is 0 if none hang or they are the endpoint's matter.
func (b *Breaker) Stuck() int {
	if !b.stuck.Load() {
		return 0
	}
	return b.lateCalls()
}

func (b *Breaker) lateCalls() int { return max(0, inEpoch(&b.late, word(b.word.Load()).epoch())) }

// late is what is known of the calls of a member that are late and still in flight, since there are any.
type late struct {
	slowest time.Duration // the longest slow time of them; 0 if there are none
	since   int64         // when the first of them began
	model   uint32        // whose they are; 0 if they are of several or it is not known
}

func (l *late) add(ticket, origin uint64, now int64) {
	model, began := uint32(origin>>32), now+int64(until(uint32(origin), now))
	switch {
	case l.slowest == 0:
		l.since, l.model = began, model
	case model != l.model:
		l.model = 0
	}
	l.since = min(l.since, began)
	l.slowest = max(l.slowest, ticketSlow(ticket))
}

// sweep takes calls in flight that are past their slow time for slow, and finds out whose matter they are.
func (w *watch) sweep(s *settings, now int64) {
	b := w.breaker
	if inEpoch(&b.late, w.epoch) <= 0 {
		w.late = late{}
	}
	votes := int64(0)
	for i := range b.stripes {
		for j := range b.stripes[i].calls {
			slot := &b.stripes[i].calls[j]
			t := slot.Load()
			if t == 0 || !overdue(t, now) {
				continue
			}
			origin := b.origins[i].of[j].Load() // before the slot is free for another call
			if slot.CompareAndSwap(t, 0) && ticketIsOf(t, w.epoch) {
				votes++
				w.late.add(t, origin, now)
			}
		}
	}
	if votes > 0 {
		b.window.slow.Add(uint64(votes))
		addInEpoch(&b.late, w.epoch, votes)
	}
	b.stuck.Store(w.ofModel(s, now))
}

// ofModel reports whether the calls that are late are a model's matter.
func (w *watch) ofModel(s *settings, now int64) bool {
	n, most := inEpoch(&w.breaker.late, w.epoch), s.ConsecutiveFailures
	if n <= 0 || w.late.model == 0 || w.breaker.onHang == nil || most == 0 {
		return false
	}
	l := &w.late
	return w.breaker.onHang(Hang{model: l.model, Since: l.since, Slow: l.slowest, Calls: n, Many: n >= most, Now: now})
}

// hanging reports whether the endpoint seems to hang.
func (w *watch) hanging(s *settings, successes uint64, now int64) (Reason, bool) {
	late := inEpoch(&w.breaker.late, w.epoch)
	if late <= 0 || s.ConsecutiveFailures == 0 || w.breaker.stuck.Load() {
		return Reason{}, false
	}
	n, quiet := late+w.breaker.inARow(w.epoch, successes), time.Duration(now-w.quietSince)
	return Reason{Rule: Hung, Count: n, Within: quiet}, n >= s.ConsecutiveFailures && quiet >= w.late.slowest
}

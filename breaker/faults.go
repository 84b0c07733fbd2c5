package breaker

import (
	"sync/atomic"
	"time"
)

// faults are models whose last call on an endpoint failed: half of a model's key (32 bits) and a stamp (32 bits) each, 0 for
// none. Two are enough to tell a fault of the endpoint from that of a model.
type faults [2]atomic.Uint64

// ModelFault notes that a call of a model failed in a way that is the model's fault if it is alone, and reports whether it must
// be the endpoint's: whether another model's last call here failed too, no longer ago than the window. model is any number that
// tells models apart, such as a hash of the name. It is the caller's to pass Failure to Done if so, and Neutral if not.
func (b *Breaker) ModelFault(model uint64, now int64) bool {
	window := defaultWindow
	if g := b.group.Load(); g != nil {
		window = time.Duration(g.settings.Load().Window)
	}
	key := faultKey(model)
	i := b.faults.slot(key)
	b.faults[i].Store(uint64(key)<<32 | uint64(stampOf(now)))
	other := b.faults[1-i].Load()
	return other != 0 && uint32(other>>32) != key && -until(uint32(other), now) < window
}

// ModelOK notes that a call of a model succeeded.
func (b *Breaker) ModelOK(model uint64) {
	for i := range b.faults {
		if f := b.faults[i].Load(); f != 0 && uint32(f>>32) == faultKey(model) {
			b.faults[i].CompareAndSwap(f, 0)
		}
	}
}

// slot returns where to note a model: where it is, else where none is, else in place of the one that is longer ago.
func (f *faults) slot(key uint32) int {
	first, second := f[0].Load(), f[1].Load()
	switch {
	case uint32(first>>32) == key, first == 0 && uint32(second>>32) != key:
		return 0
	case uint32(second>>32) == key, second == 0, int32(uint32(first)-uint32(second)) > 0:
		return 1
	}
	return 0
}

// faultKey folds a model's number, so that small numbers are told apart as well as hashes are. It is never 0.
func faultKey(model uint64) uint32 { return max(1, uint32(model>>32)^uint32(model)) }

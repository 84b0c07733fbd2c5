package picker

import "time"

// minRamp is the share of its usual traffic that a newcomer gets at once: with none at all nothing would ever be learned of it.
const minRamp = 0.1

// SlowStart has the endpoint get its share of the traffic little by little, over a window from now on: caches are cold, and models are yet to be
// compiled. A window of 0 or less does nothing. Endpoints get less only in favour of others: one that is alone gets everything.
func (e *Endpoint) SlowStart(now int64, window time.Duration) {
	if window <= 0 {
		return
	}
	e.rampAt.Store(now)
	e.rampFor.Store(int64(window))
	e.stand(ramping, ramping)
}

// started returns how far the slow start has come, from minRamp to 1.
func (e *Endpoint) started(now int64) float64 {
	return min(1, max(minRamp, float64(now-e.rampAt.Load())/float64(e.rampFor.Load())))
}

package health

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Calls end, picks and the status page read and the slow loop updates at once; no count is lost, and no reader sees nonsense.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	const workers, calls = 4, 5000
	var b Baseline
	var v Vitals
	var s Score
	c := DefaultConfig()
	var ends, others sync.WaitGroup
	done := make(chan struct{})
	for w := range workers {
		ends.Go(func() {
			took := noisy(uint64(w), millisecond, 0.8)
			for i := range calls {
				v.Success(b.Observe(second+int64(i)*1e6, took()))
				v.Failure()
				v.Served()
			}
		})
	}
	others.Go(func() {
		for now := 10 * second; ; now += second / 100 {
			s.Update(now, &c, &v, LoadView{MemoryFree: 0.5, MemoryFreeAt: now, OwnInFlight: 3})
			select {
			case <-done:
				return
			default:
			}
		}
	})
	others.Go(func() {
		for {
			value := s.Value()
			parts := s.Parts()
			s.Healthy()
			for _, p := range []Part{{Value: value}, parts.Errors, parts.Latency, parts.GPUMemory, parts.Connections} {
				if !assert.True(t, p.Value >= 0 && p.Value <= 1, p) {
					return
				}
			}
			select {
			case <-done:
				return
			default:
			}
		}
	})
	ends.Wait()
	close(done)
	others.Wait()

	sum := uint32(0)
	for i := range v.ratios {
		sum += v.ratios[i].Load()
	}
	assert.EqualValues(t, workers*calls, sum)
	assert.EqualValues(t, workers*calls, v.failures.Load())
	assert.EqualValues(t, workers*calls, v.served.Load())
	assert.InEpsilon(t, millisecond, b.Value(), 0.25)
}

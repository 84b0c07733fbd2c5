package sim

import (
	"math"
	"time"
)

// gauges are what a server measures of itself, for its reports.
type gauges struct {
	passed      time.Duration // when busyTime was last brought up to date
	busyTime    float64       // worker seconds since the last sample
	sampled     time.Duration
	ended       int // calls served since the last sample
	utilization float64
	rate        float64 // calls per second
	delay       float64 // seconds that calls have waited for a worker
	service     []float32
}

// gaugeMemory is the time constant of what servers report as averages.
const gaugeMemory = time.Second

// pass accounts for the time since the last change of the number of busy workers.
func (g *gauges) pass(now time.Duration, busy int) {
	g.busyTime += float64(busy) * (now - g.passed).Seconds()
	g.passed = now
}

// sample brings the averages up to date.
func (s *server) sample(now time.Duration) {
	s.pass(now, s.busy)
	span := (now - s.sampled).Seconds()
	if span <= 0 {
		return
	}
	w := 1 - math.Exp(-span/gaugeMemory.Seconds())
	s.utilization += w * (s.busyTime/span/float64(s.fleet.Workers) - s.utilization)
	s.rate += w * (float64(s.ended)/span - s.rate)
	s.busyTime, s.ended, s.sampled = 0, 0, now
}

// serviceWeight is the weight of a new service time in a model's average.
const serviceWeight = 0.15

// observe notes a call that has been served.
func (s *server) observe(c *Call, now time.Duration) {
	s.ended++
	took := float32((now - c.ran).Seconds())
	if mean := &s.service[c.Model]; *mean == 0 {
		*mean = took
	} else {
		*mean += serviceWeight * (took - *mean)
	}
	s.delay += serviceWeight * ((c.ran - c.queuedAt).Seconds() - s.delay)
}

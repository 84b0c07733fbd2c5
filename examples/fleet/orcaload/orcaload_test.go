package orcaload

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestMeter(t *testing.T) {
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	m := &meter{workers: 2, period: time.Second, at: start, since: start}

	m.begin(at(0))
	m.begin(at(0))
	m.begin(at(0)) // waits: there are two workers
	qps, utilization := m.end(at(500))
	assert.Zero(t, qps, "nothing is known before the first period has ended")
	assert.Zero(t, utilization)
	m.end(at(500))
	qps, utilization = m.end(at(1000))
	assert.InDelta(t, 3, qps, 1e-9)
	assert.InDelta(t, .75, utilization, 1e-9, "two workers for half a second, one for the other half")

	m.begin(at(1500))
	qps, utilization = m.end(at(1600))
	assert.InDelta(t, 3, qps, 1e-9, "the last full period stands until the next has ended")
	assert.InDelta(t, .75, utilization, 1e-9)
	m.begin(at(2500))
	qps, utilization = m.end(at(3000))
	assert.InDelta(t, 1, qps, 1e-9)
	assert.InDelta(t, .15, utilization, 1e-9)
}

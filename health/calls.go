package health

import "time"

// calls is how the latest calls of an endpoint ended: counts that forget with the time constant scoreMemory.
type calls struct {
	seen   [buckets]uint32 // the counts of Vitals at the last update
	served uint32
	failed uint32
	skip   bool // what comes with the next update is not counted

	ratios    [buckets]float64
	answered  float64 // sum of ratios
	successes float64
	failures  float64
	endedAt   int64 // when a call was last seen to end, and
	ratioAt   int64 // when one was that has a ratio; 0 if never

	tail, middle average // 99th percentile and median of ratios
	normal       Baseline
	normalAt     int64
}

const (
	// leastCalls make a share of errors.
	leastCalls = 5
	// leastAnswers make a percentile.
	leastAnswers = 20
	// normalTail is the least normal 99th percentile, in multiples of the baseline: that of lognormal times with a coefficient of
	// variation of 0.8. Below it, the 99th percentile of the few calls of some seconds says little.
	normalTail = 4.0
	// normalEvery is how often the normal 99th percentile learns, in nanoseconds.
	normalEvery = int64(time.Second)
)

// update takes in what v has counted since the last update, and keeps the part kept of what was before.
func (c *calls) update(now int64, kept float64, v *Vitals) {
	c.successes *= kept
	c.failures *= kept
	c.answered = 0
	fresh := 0.0
	for i := range c.ratios {
		d := c.since(&c.seen[i], v.ratios[i].Load())
		fresh += d
		c.ratios[i] = c.ratios[i]*kept + d
		c.answered += c.ratios[i]
	}
	if fresh > 0 {
		c.ratioAt = now
	}
	served, failed := c.since(&c.served, v.served.Load()), c.since(&c.failed, v.failures.Load())
	c.successes += fresh + served
	c.failures += failed
	if fresh+served+failed > 0 {
		c.endedAt = now
	}
	c.skip = false
}

// since returns how far a count has come since it was seen, and sees it.
func (c *calls) since(seen *uint32, count uint32) float64 {
	d := count - *seen
	*seen = count
	if c.skip {
		return 0
	}
	return float64(d)
}

// reset forgets everything but where the counts of Vitals are.
func (c *calls) reset() {
	*c = calls{seen: c.seen, served: c.served, failed: c.failed, skip: true}
}

func (c *calls) errorsPart(now int64, staleAfter time.Duration) Part {
	n := c.successes + c.failures
	if !fresh(now, c.endedAt, staleAfter) || n < leastCalls {
		return Part{}
	}
	return Part{Value: c.successes / n, Known: true}
}

// latencyPart is the worse of two. The 99th percentile is measured by the one that is normal for this endpoint. The median is measured by
// the baseline itself: it finds an endpoint whose times vary little, whose 99th percentile would have to pass normalTail first.
func (c *calls) latencyPart(now int64, kept float64, staleAfter time.Duration) Part {
	if !fresh(now, c.ratioAt, staleAfter) || c.answered < leastAnswers {
		c.tail, c.middle = average{}, average{}
		return Part{}
	}
	// One whole call must lie above the 99th percentile, so that a single one that waited for a model to be loaded is none.
	p99 := c.ratioBelow(max(c.answered/100, 1))
	if now-c.normalAt >= normalEvery {
		c.normal.Observe(now, p99)
		c.normalAt = now
	}
	tail := max(c.normal.Value(), normalTail) / c.tail.add(p99, kept)
	middle := 1 / c.middle.add(c.ratioBelow(c.answered/2), kept)
	return Part{Value: min(tail, middle, 1), Known: true}
}

// ratioBelow returns the start of the bucket of the largest ratio below which all but so many calls lie.
func (c *calls) ratioBelow(above float64) float64 {
	i := buckets - 1
	for n := c.ratios[i]; i > 0 && n <= above; n += c.ratios[i] {
		i--
	}
	return bucketStart(i)
}

package health

import "time"

// calls is how the latest calls of an endpoint ended: counts that forget with the time constant scoreMemory.
type calls struct {
	seen   [buckets]uint32 // the counts of Vitals at the last update
	served uint32
	failed uint32
	skip   bool // what comes with the next update is not counted

	ratios    [buckets]float32
	answered  float64 // sum of ratios
	successes float64
	failures  float64
	endedAt   int64 // when a call was last seen to end; 0 if never

	tail, middle average // 99th percentile and median of ratios
	normal       Baseline
	last         float64 // 99th percentile of lastAt, which normal learns next
	lastAt       int64
}

const (
	// leastCalls make a share of errors.
	leastCalls = 5
	// leastAnswers make a percentile.
	leastAnswers = 20
	// normalTail is the least normal 99th percentile, in multiples of the baseline: that of lognormal times with a coefficient of
	// variation of 0.8. Below it, the 99th percentile of the few calls of some seconds says little.
	normalTail = 4.0
	// usualRatio is the end of the bucket that begins with the baseline itself: a median below it is as usual.
	usualRatio = 1.25
)

// update takes in what v has counted since the last update, and keeps the part kept of what was before, or nothing of that if it is stale: else
// the first call after a long rest would bring it back.
func (c *calls) update(now int64, kept float64, v *Vitals, staleAfter time.Duration) {
	if !fresh(now, c.endedAt, staleAfter) {
		kept = 0
	}
	c.successes *= kept
	c.failures *= kept
	c.answered = 0
	timed := 0.0
	for i := range c.ratios {
		d := c.since(&c.seen[i], v.ratios[i].Load())
		timed += d
		c.ratios[i] = float32(float64(c.ratios[i])*kept + d)
		c.answered += float64(c.ratios[i])
	}
	served, failed := c.since(&c.served, v.served.Load()), c.since(&c.failed, v.failures.Load())
	c.successes += timed + served
	c.failures += failed
	if timed+served+failed > 0 {
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

// latencyPart is the worse of two. The 99th percentile is measured by the one that is normal for this endpoint. The median is
// measured by the baseline itself: it finds an endpoint whose times vary little, whose 99th percentile would have to pass
// normalTail first. Calls that fail keep what is known of the times of those before: a server that is first slow and then fails
// is not well in between.
func (c *calls) latencyPart(now int64, kept float64, staleAfter time.Duration) Part {
	if !fresh(now, c.endedAt, staleAfter) || c.answered < leastAnswers {
		c.tail, c.middle = average{}, average{}
		return Part{}
	}
	// One whole call must lie above the 99th percentile, so that a single one that waited for a model to be loaded is none.
	p99, median := c.exceededBy(max(c.answered/100, 1)), c.exceededBy(c.answered/2)
	if now-c.lastAt >= int64(scoreMemory) {
		if c.last > 0 && median <= incidentRatio {
			c.normal.Observe(now, c.last)
		}
		c.last, c.lastAt = p99, now
	}
	if median < usualRatio {
		median = 1
	}
	tail := max(c.normal.Value(), normalTail) / c.tail.add(p99, kept)
	middle := 1 / c.middle.add(median, kept)
	return Part{Value: min(tail, middle, 1), Known: true}
}

// exceededBy returns the ratio that so many calls are above, as if those of a bucket were spread evenly over it.
func (c *calls) exceededBy(above float64) float64 {
	i := buckets - 1
	for i > 0 && float64(c.ratios[i]) <= above {
		above -= float64(c.ratios[i])
		i--
	}
	start, end := bucketStart(i), bucketStart(i+1)
	return end - (end-start)*min(above/float64(c.ratios[i]), 1)
}

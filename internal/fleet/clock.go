package fleet

import "time"

// clock translates between the wall clock and a gpu's model time, which begins with the clock at 0.
type clock struct {
	start time.Time
	scale float64 // wall time per model time
}

func (c clock) now() time.Duration { return time.Duration(float64(time.Since(c.start)) / c.scale) }

// wall returns how much wall-clock time a model time takes.
func (c clock) wall(d time.Duration) time.Duration { return time.Duration(float64(d) * c.scale) }

// at returns the wall-clock time of a moment in model time.
func (c clock) at(t time.Duration) time.Time { return c.start.Add(c.wall(t)) }

package replay

import (
	"context"
	"time"
)

// clock relates model time since the start of a replay to the wall clock.
type clock struct {
	start time.Time
	scale float64 // wall-clock time per model time
}

func (c clock) wall(model time.Duration) time.Time {
	return c.start.Add(c.span(model))
}

func (c clock) span(model time.Duration) time.Duration {
	return time.Duration(float64(model) * c.scale)
}

func (c clock) model(wall time.Time) time.Duration {
	return time.Duration(float64(wall.Sub(c.start)) / c.scale)
}

// sleep returns at the given model time, or with an error when ctx ends.
func (c clock) sleep(ctx context.Context, until time.Duration) error {
	d := time.Until(c.wall(until))
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

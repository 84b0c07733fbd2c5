package breaker

import "time"

// SlowTime is Config.SlowTime by the rules in force.
func (g *Group) SlowTime(expected, remaining time.Duration) time.Duration {
	return g.settings.Load().SlowTime(expected, remaining)
}

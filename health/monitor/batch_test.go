package monitor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mlbalancer/mlbalancer/health"
)

func models(state health.ModelState, names ...string) []health.Model {
	ms := []health.Model{}
	for _, name := range names {
		ms = append(ms, health.Model{Name: name, State: state})
	}
	return ms
}

func TestABatchSaysWhatItsReportsSayTogether(t *testing.T) {
	t.Parallel()
	busy := health.Load{Has: health.HasActive, Active: 3}
	for name, c := range map[string]struct {
		add  []health.Report
		want health.Report
	}{
		"one": {
			[]health.Report{{Server: health.ServerReady, Load: busy, Models: models(health.ModelReady, "a"), Age: 1}},
			health.Report{Server: health.ServerReady, Load: busy, Models: models(health.ModelReady, "a"), Age: 1},
		},
		"what a later one leaves out stands": {
			[]health.Report{{Server: health.ServerReady, Load: busy, OnDemand: health.Yes}, {Interval: time.Second}},
			health.Report{Server: health.ServerReady, Load: busy, OnDemand: health.Yes, Interval: time.Second, Models: models(0)},
		},
		"a load is of one moment": {
			[]health.Report{{Load: busy}, {Load: health.Load{Has: health.HasWaiting, Waiting: 1}}},
			health.Report{Load: health.Load{Has: health.HasWaiting, Waiting: 1}, Models: models(0)},
		},
		"the last word on each model": {
			[]health.Report{
				{Models: models(health.ModelLoading, "a", "b")},
				{Models: models(health.ModelReady, "b", "c")},
				{Models: models(health.ModelAbsent, "c")},
			},
			health.Report{Models: []health.Model{
				{Name: "a", State: health.ModelLoading},
				{Name: "b", State: health.ModelReady},
				{Name: "c", State: health.ModelAbsent},
			}},
		},
		"a complete one replaces": {
			[]health.Report{
				{Models: models(health.ModelReady, "a")},
				{Models: models(health.ModelReady, "b")},
				{Models: models(health.ModelReady, "c"), Complete: true},
			},
			health.Report{Models: models(health.ModelReady, "c"), Complete: true},
		},
		"and stays complete": {
			[]health.Report{
				{Models: models(health.ModelReady, "a"), Complete: true},
				{Models: models(health.ModelReady, "b")},
			},
			health.Report{Models: models(health.ModelReady, "a", "b"), Complete: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &batch{}
			b.add(&health.Report{Models: models(health.ModelReady, "a", "x", "y", "z"), Complete: true})
			b.add(&health.Report{Models: models(health.ModelReady, "u")})
			b.clear()
			assert.True(t, b.empty())
			for i := range c.add {
				b.add(&c.add[i])
			}
			assert.Equal(t, c.want, b.report)
			assert.False(t, b.empty())
		})
	}
}

func TestABatchIsUsedAgain(t *testing.T) {
	b := &batch{}
	one := &health.Report{Models: models(health.ModelReady, "a", "b")}
	two := &health.Report{Models: models(health.ModelReady, "b", "c")}
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		b.add(one)
		b.add(two)
		b.clear()
	}))
}

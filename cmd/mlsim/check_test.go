package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mlbalancer/mlbalancer/internal/sim"
)

func TestGoalsAreCheckedAndAMissIsAnError(t *testing.T) {
	t.Parallel()
	list := []goal{
		{name: "A", scenario: "ring-friendly", metric: p99, factor: 1, against: "p2c"},
		{name: "B", scenario: "ring-friendly", clients: 2, metric: loads, limit: 500},
		{name: "C", scenario: "arena-70", metric: loads, limit: 1},
	}
	var out, errs bytes.Buffer
	f, err := parse([]string{"-goals", "-seeds", "1"}, &errs)
	require.NoError(t, err)
	f.find = func(id string) (sim.Scenario, error) {
		sc, err := sim.Find(id)
		sc.From, sc.To = 20*time.Second, 40*time.Second
		return sc, err
	}
	require.NoError(t, checkGoals(t.Context(), f, list, &out, &errs))
	assert.Regexp(t, `met +A +ring-friendly +model_aware/affinity +p99 s .*1 x p2c's 30`, out.String())
	assert.Regexp(t, `met +B +ring-friendly M=2 +model_aware/affinity +cold loads +\d+ +500 +limit`, out.String())
	assert.Contains(t, errs.String(), "goals for arena-70 are left out")

	list[0].factor = .001
	out.Reset()
	err = checkGoals(t.Context(), f, list, &out, &errs)
	assert.Equal(t, missed{1, 2}, err)
	assert.EqualError(t, err, "1 of 2 goals missed")
	assert.Regexp(t, `MISSED +A`, out.String())

	f.json = true
	out.Reset()
	assert.Error(t, checkGoals(t.Context(), f, list, &out, &errs))
	assert.Contains(t, out.String(), `"rule": "0.001 x p2c's 30"`)
}

func TestGoalsNameScenariosAndPoliciesThatExist(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, g := range goals() {
		_, err := sim.Find(g.scenario)
		require.NoError(t, err)
		_, err = sim.KindOf(subject() + g.suffix)
		require.NoError(t, err)
		if g.against != "" {
			_, err = sim.KindOf(g.against)
			require.NoError(t, err)
			assert.Positive(t, g.factor)
		}
		seen[g.name] = true
	}
	assert.Len(t, seen, 9)
}

func TestCellsAreShared(t *testing.T) {
	t.Parallel()
	var errs bytes.Buffer
	b, checks, err := newBench(&flags{find: sim.Find}, goals(), subject(), &errs)
	require.NoError(t, err)
	assert.Less(t, len(b.cells), 2*len(checks))
	seen := map[string]bool{}
	for _, c := range b.cells {
		id := c.scenario.ID + c.scenario.Reports.String() + string(rune(c.scenario.Clients)) + c.kind.Name
		assert.False(t, seen[id], id)
		seen[id] = true
	}
}

func TestLimitsForThreeSeedsAreScaled(t *testing.T) {
	t.Parallel()
	assert.Equal(t, 60., loads3.of(&sim.Figures{Loads: 100, Seeds: 5}))
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/mlbalancer/mlbalancer/internal/sim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// quick are the arguments of runs that take milliseconds.
var quick = []string{"-servers", "4", "-slots", "2", "-models", "6", "-rho", "0.3", "-warmup", "5s", "-measure", "10s", "-policies", "p2c,ring_hash,ring,all-resident"}

func mlsim(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	err = run(t.Context(), args, &out, &errs)
	return out.String(), errs.String(), err
}

func TestBadArgumentsAreNamed(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		`want a whole number from 1 to 1000`:                    {"-seeds", "0"},
		`invalid value "x" for flag -clients: want a whole`:     {"-clients", "x"},
		`want a number, 0 to 10`:                                {"-zipf", "steep"},
		`want a duration above 0 such as 5s`:                    {"-load", "0s"},
		`reports is "push", want stream:DURATION, poll`:         {"-reports", "push"},
		`policies is "p3c", want one of model_aware/`:           {"-policies", "p2c,p3c"},
		`flag provided but not defined: -size`:                  {"-size", "3"},
		`scenario is "none", want one of fits-70`:               {"-scenario", "none"},
		`trace is nothing, want the file of a trace`:            {"-scenario", "arena-70"},
		`-rho is given with -scenario or -goals, want it alone`: {"-scenario", "fits-70", "-rho", ".5"},
		`-clients is given with -goals, want it without`:        {"-goals", "-clients", "3"},
		`rho is 11, want above 0, up to 10`:                     {"-rho", "11"},
		`arguments are ["fits-70"], want flags only`:            {"fits-70"},
		`policies is ["p2c"], want one of ours`:                 {"-goals", "-policies", "p2c"},
		`no such file`:                                          {"-trace", filepath.Join(t.TempDir(), "none.csv")},
		`is a dir`:                                              {"-scenario", "fits-70", "-html", t.TempDir()},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			_, stderr, err := mlsim(t, args...)
			require.Error(t, err)
			assert.Contains(t, stderr+err.Error(), want)
		})
	}
	_, stderr, err := mlsim(t, "-h")
	assert.ErrorIs(t, err, flag.ErrHelp)
	assert.Contains(t, stderr, "-scenario IDs")
}

func TestTheSameArgumentsPrintTheSameBytes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var pages [2][]byte
	var tables, jsons [2]string
	for i := range 2 {
		page := filepath.Join(dir, string(rune('a'+i)))
		var err error
		tables[i], _, err = mlsim(t, append(quick, "-seeds", "2", "-html", page)...)
		require.NoError(t, err)
		jsons[i], _, err = mlsim(t, append(quick, "-seeds", "2", "-json")...)
		require.NoError(t, err)
		pages[i], err = os.ReadFile(page)
		require.NoError(t, err)
	}
	assert.Equal(t, tables[0], tables[1])
	assert.Equal(t, jsons[0], jsons[1])
	assert.Equal(t, pages[0], pages[1])
	assert.Contains(t, tables[0], "model_aware/ring")
	assert.Equal(t, 4, strings.Count(string(pages[0]), "<svg"))
	assert.NotContains(t, string(pages[0]), "NaN")

	var r struct {
		Seeds     int
		Scenarios []struct {
			ID       string
			Setup    struct{ Servers int }
			Policies []struct {
				Name, Role string
				P99        float64
				Loads      int
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(jsons[0]), &r))
	assert.Equal(t, 2, r.Seeds)
	require.Len(t, r.Scenarios, 1)
	assert.Equal(t, "own", r.Scenarios[0].ID)
	assert.Equal(t, 4, r.Scenarios[0].Setup.Servers)
	require.Len(t, r.Scenarios[0].Policies, 4)
	assert.Equal(t, "baseline", r.Scenarios[0].Policies[0].Role)
	assert.Greater(t, r.Scenarios[0].Policies[0].P99, r.Scenarios[0].Policies[3].P99)
	assert.Zero(t, r.Scenarios[0].Policies[3].Loads)
}

func TestListNamesEverything(t *testing.T) {
	t.Parallel()
	out, _, err := mlsim(t, "-list")
	require.NoError(t, err)
	for _, sc := range sim.Scenarios() {
		assert.Contains(t, out, sc.ID)
	}
	for _, k := range sim.Kinds() {
		assert.Contains(t, out, k.Name)
	}
}

func TestAllIsWhatNeedsNothing(t *testing.T) {
	t.Parallel()
	var stderr bytes.Buffer
	f, err := parse([]string{"-scenario", "all", "-clients", "7", "-reports", "none"}, &stderr)
	require.NoError(t, err)
	cells, err := f.cells(&stderr)
	require.NoError(t, err)
	seen := map[string][]string{}
	for _, c := range cells {
		seen[c.scenario.ID] = append(seen[c.scenario.ID], c.kind.Name)
		assert.Equal(t, 7, c.scenario.Clients)
		assert.Equal(t, sim.None, c.scenario.Reports.Mode)
	}
	assert.NotContains(t, seen, "n-1000")
	assert.NotContains(t, seen, "arena-70")
	assert.Contains(t, stderr.String(), "arena-70 is left out: it needs -trace")
	assert.NotContains(t, seen["fits-70"], "ring_hash+od")
	assert.Contains(t, seen["black-hole"], "ring_hash+od")
	assert.Contains(t, seen["black-hole"], defaultStrategy+"+retry")
}

// testTrace writes a trace of two models.
func testTrace(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "trace.csv")
	rows := "arrival_s,model_id\n0,a\n1,b\n2,a\n3,a\n"
	require.NoError(t, os.WriteFile(file, []byte(rows), 0o600))
	return file
}

func TestATraceIsReplayedToAFleetOfOnesOwn(t *testing.T) {
	t.Parallel()
	out, _, err := mlsim(t, "-trace", testTrace(t), "-servers", "3", "-seeds", "1", "-warmup", "1s", "-measure", "5s", "-policies", "round_robin")
	require.NoError(t, err)
	assert.Contains(t, out, "own: a fleet of one's own, and a trace")
	assert.Contains(t, out, "2 models; rho 0.70")
}

func TestATraceThatNobodyReplaysIsAnError(t *testing.T) {
	t.Parallel()
	file := testTrace(t)
	_, _, err := mlsim(t, "-trace", file, "-scenario", "fits-70", "-seeds", "1")
	assert.EqualError(t, err, "-trace is given with -scenario fits-70, want a scenario that replays one: -list names them")
	_, _, err = mlsim(t, "-trace", file, "-models", "5")
	assert.EqualError(t, err, "-models is given with -trace, want it without: a trace has its own models")
}

func TestAnInterruptEndsTheRuns(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs bytes.Buffer
	assert.ErrorIs(t, run(ctx, append(quick, "-seeds", "100"), &out, &errs), context.Canceled)
	assert.Empty(t, out.String())
}

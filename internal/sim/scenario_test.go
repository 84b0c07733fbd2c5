package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestScenariosAreValidAndNamedOnce(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, sc := range Scenarios() {
		assert.False(t, seen[sc.ID], sc.ID)
		seen[sc.ID] = true
		assert.NotEmpty(t, sc.About)
		if sc.NeedsTrace {
			assert.ErrorContains(t, sc.Validate(), "trace is nothing, want the file of a trace: scenario "+sc.ID)
			sc.Trace = newTrace([]float64{0, 1}, []string{"a", "b"})
		}
		assert.NoError(t, sc.Validate(), sc.ID)
	}
	sc, err := Find("tight-70")
	require.NoError(t, err)
	assert.Equal(t, 100, sc.Models)
	_, err = Find("loose-70")
	assert.ErrorContains(t, err, `scenario is "loose-70", want one of fits-70, `)
}

func TestValidateNamesTheField(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(s *Scenario){
		"servers is 0, want 1 to 10000":                func(s *Scenario) { s.Servers = 0 },
		"slots is 0, want 1 or more":                   func(s *Scenario) { s.Slots = 0 },
		"workers is -1, want 1 or more":                func(s *Scenario) { s.Workers = -1 },
		"models is 0, want 1 to 100000":                func(s *Scenario) { s.Models = 0 },
		"zipf is -1, want 0 to 10":                     func(s *Scenario) { s.Zipf = -1 },
		"rho is 0, want above 0, up to 10":             func(s *Scenario) { s.Rho = 0 },
		"swing is 1, want 0 to below 1":                func(s *Scenario) { s.Swing = 1 },
		"swingPeriod is -1s, want 0 or more":           func(s *Scenario) { s.SwingPeriod = -time.Second },
		"service is 0s, want above 0":                  func(s *Scenario) { s.Service = 0 },
		"load is 0s, want above 0, up to 1h":           func(s *Scenario) { s.Load = 0 },
		"deadline is 0s, want above 0":                 func(s *Scenario) { s.Deadline = 0 },
		"to is 1s, want after from, 20s":               func(s *Scenario) { s.To = time.Second },
		"clients is 0, want 1 to 10000":                func(s *Scenario) { s.Clients = 0 },
		"servers is 9000, want at most 20000000 pairs": func(s *Scenario) { s.Servers, s.Models = 9000, 90_000 },
		"reports is stream:0s, want a period from 1ms": func(s *Scenario) { s.Reports.Every = 0 },
	} {
		sc := small()
		change(&sc)
		_, err := Run(&sc, "p2c", 1)
		assert.ErrorContains(t, err, want)
	}
	sc := small()
	_, err := Run(&sc, "p3c", 1)
	assert.ErrorContains(t, err, `policies is "p3c", want one of model_aware/`)
}

func TestReportsReadWhatTheyWrite(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"stream:250ms", "poll:5s", "trailers", "none"} {
		r, err := ParseReports(text)
		require.NoError(t, err, text)
		assert.Equal(t, text, r.String())
	}
	for _, text := range []string{"", "stream", "poll:x", "poll:-1s", "trailers:1s", "none:", "push:1s"} {
		_, err := ParseReports(text)
		assert.ErrorContains(t, err, "reports is ", text)
	}
}

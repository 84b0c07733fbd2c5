package fault

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mlbalancer/mlbalancer/internal/fleet"
)

var models = []string{"hot", "m@1/x", "cold"}

func TestParse(t *testing.T) {
	for in, want := range map[string][]Fault{
		"":                   nil,
		"slow:2@33%-66%":     {{Kind: "slow", Server: 2, Factor: 10, From: .33, To: .66}},
		"slow:2x2.5@0%-100%": {{Kind: "slow", Server: 2, Factor: 2.5, From: 0, To: 1}},
		"fail:0@50%":         {{Kind: "fail", Server: 0, Factor: 1, From: .5, To: forever}},
		"fail:7x0.2@12.5%":   {{Kind: "fail", Server: 7, Factor: .2, From: .125, To: forever}},
		"hang:1@10%-20%":     {{Kind: "hang", Server: 1, From: .1, To: .2}},
		"restart:3@100%":     {{Kind: "restart", Server: 3, From: 1, To: forever}},
		"kill:2@50%, drain:3@60%-80%": {
			{Kind: "kill", Server: 2, From: .5, To: forever}, {Kind: "drain", Server: 3, From: .6, To: .8}},
		"broken-model:2@50%":           {{Kind: "broken-model", Server: 2, Model: "hot", From: .5, To: forever}},
		"broken-model:0/m@1/x@10%-20%": {{Kind: "broken-model", Model: "m@1/x", From: .1, To: .2}},
		"restart-all":                  {{Kind: "restart-all", To: 1}},
		"restart-all@20%-80%":          {{Kind: "restart-all", From: .2, To: .8}},
		"restart:3@10%-20%":            {{Kind: "restart", Server: 3, From: .1, To: .2}},
		"stall:2/gpustats@50%":         {{Kind: "stall", Server: 2, Signals: fleet.GPUStats, From: .5, To: forever}},
		"mute:2@10%-20%":               {{Kind: "mute", Server: 2, Signals: allSignals, From: .1, To: .2}},
		"lie-idle:2/orca@10%-20%":      {{Kind: "lie-idle", Server: 2, Signals: fleet.ORCA, From: .1, To: .2}},
		"not-ready:2@10%-20%":          {{Kind: "not-ready", Server: 2, From: .1, To: .2}},
		"stop:2@50%":                   {{Kind: "stop", Server: 2, From: .5, To: forever}},
	} {
		got, err := Parse(in, 8, models)
		require.NoError(t, err, in)
		require.Len(t, got, len(want), in)
		for i, f := range got {
			assert.InDelta(t, want[i].From, f.From, 1e-12, in)
			assert.InDelta(t, want[i].To, f.To, 1e-12, in)
			f.From, f.To = want[i].From, want[i].To
			assert.Equal(t, want[i], f, in)
			again, err := Parse(f.String(), 8, models)
			require.NoError(t, err)
			assert.Equal(t, []Fault{f}, again, "the way it is written reads the same")
		}
	}
}

func TestParseErrors(t *testing.T) {
	const form = `want kind:server@from or kind:server@from-to, such as slow:2@33%-66%`
	const times = `want 0% to 100% of the measured part`
	for in, want := range map[string]string{
		"slow":                      `fault "slow": ` + form,
		"slow:2":                    `fault "slow:2": ` + form,
		"slow@33%":                  `fault "slow@33%": ` + form,
		"kill:2@50%,":               `fault "": ` + form,
		"burn:2@50%":                `fault "burn:2@50%": kind is "burn", want slow, fail, hang, kill, stop, drain, restart, broken-model, stall, mute, lie-idle, lie-busy, lie-empty, not-ready or restart-all`,
		"kill:two@50%":              `fault "kill:two@50%": server is "two", want 0 to 7`,
		"kill:8@50%":                `fault "kill:8@50%": server is "8", want 0 to 7`,
		"kill:-1@50%":               `fault "kill:-1@50%": server is "-1", want 0 to 7`,
		"kill:2x3@50%":              `fault "kill:2x3@50%": factor is "3", want none: kill takes none`,
		"slow:2x@50%":               `fault "slow:2x@50%": factor is "", want a factor from 1`,
		"slow:2x0.5@50%":            `fault "slow:2x0.5@50%": factor is "0.5", want a factor from 1`,
		"fail:2x7@50%":              `fault "fail:2x7@50%": factor is "7", want a fraction from 0 to 1`,
		"slow:2xNaN@50%":            `fault "slow:2xNaN@50%": factor is "NaN", want a factor from 1`,
		"kill:2@50":                 `fault "kill:2@50": from is "50", ` + times,
		"kill:2@150%":               `fault "kill:2@150%": from is "150%", ` + times,
		"slow:2@33%-":               `fault "slow:2@33%-": to is "", ` + times,
		"slow:2@66%-33%":            `fault "slow:2@66%-33%": to is "33%", want more than from (66%)`,
		"restart-all:1@10%":         `fault "restart-all:1@10%": server is "1", want none: restart-all is for all`,
		"restart-all@100%":          `fault "restart-all@100%": to is "100%", want more than from (100%)`,
		"broken-model:2/no@10%":     `fault "broken-model:2/no@10%": model is "no", want one of the trace, such as "hot"`,
		"stall:2/gpu@10%":           `fault "stall:2/gpu@10%": signal is "gpu", want one of health, oip, orca, gpustats`,
		"stall:2/none@10%":          `fault "stall:2/none@10%": signal is "none", want one of health, oip, orca, gpustats`,
		"kill:2/hot@10%":            `fault "kill:2/hot@10%": model is "hot", want none: kill takes none`,
		"slow:2@33%-66%,hang:1@NaN": `fault "hang:1@NaN": from is "NaN", ` + times,
	} {
		_, err := Parse(in, 8, models)
		assert.EqualError(t, err, want)
	}
}

func TestUsageNamesEveryKind(t *testing.T) {
	for _, k := range kinds {
		assert.Contains(t, Usage(), k.name)
	}
}

func TestSteps(t *testing.T) {
	one := Fault{Kind: "kill", Server: 2, From: .5, To: forever}
	assert.Equal(t, []Fault{one}, one.Steps(8))
	assert.Equal(t, []Fault{
		{Kind: "drain", Server: 0, From: .5, To: .625},
		{Kind: "drain", Server: 1, From: .75, To: .875},
	}, Fault{Kind: "restart-all", From: .5, To: 1}.Steps(2))
}

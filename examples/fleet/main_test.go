package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/mlbalancer/mlbalancer/examples/fleet/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// writeTrace writes a trace of 60 requests for four models.
func writeTrace(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("arrival_s,model_id,user_id,input_tokens,output_tokens,duration_s\n")
	for i := range 60 {
		fmt.Fprintf(&b, "%d,m%d,,10,200,\n", i/10, i%4)
	}
	path := filepath.Join(t.TempDir(), "small.csv")
	require.NoError(t, os.WriteFile(path, []byte(b.String()), 0o600))
	return path
}

// small are arguments for a replay of a fraction of a second.
func small(t *testing.T, more ...string) []string {
	return append([]string{"-trace", writeTrace(t), "-servers", "2", "-scale", "200", "-passes", "2", "-warmup", "1", "-deadline", "60m"}, more...)
}

func TestJSON(t *testing.T) {
	html := filepath.Join(t.TempDir(), "out.html")
	var stdout, stderr bytes.Buffer
	require.NoError(t, run(t.Context(), small(t, "-json", "-seeds", "3", "-policies", "round_robin,ring_hash", "-html", html), &stdout, &stderr))
	var got struct {
		Policies []struct {
			Name   string
			Calls  int
			Errors int
			P50    float64 `json:"p50_ms"`
			Runs   []struct{ Calls int }
		}
		Setup struct{ Seeds []int }
	}
	d := json.NewDecoder(&stdout)
	require.NoError(t, d.Decode(&got))
	_, err := d.Token()
	require.ErrorIs(t, err, io.EOF, "nothing but the object on standard output")
	require.Len(t, got.Policies, 2)
	for i, name := range []string{"round_robin", "ring_hash"} {
		p := got.Policies[i]
		assert.Equal(t, name, p.Name)
		assert.Equal(t, 120, p.Calls, "every row in each of two passes")
		assert.Zero(t, p.Errors)
		assert.Positive(t, p.P50)
		assert.Len(t, p.Runs, 3)
	}
	assert.Equal(t, []int{1, 2, 3}, got.Setup.Seeds)
	assert.Equal(t, 6, strings.Count(stderr.String(), "120 calls"), "a line for each replay:\n%s", stderr.String())
	page, err := os.ReadFile(html)
	require.NoError(t, err)
	assert.Contains(t, string(page), "ring_hash")
}

func TestTable(t *testing.T) {
	html := filepath.Join(t.TempDir(), "out.html")
	var stdout, stderr bytes.Buffer
	require.NoError(t, run(t.Context(), small(t, "-quiet", "-html", html), &stdout, &stderr))
	for _, name := range policy.Names() {
		assert.Contains(t, stdout.String(), name)
	}
	assert.True(t, strings.HasSuffix(stdout.String(), "Report with plots: "+html+"\n"))
	assert.Empty(t, stderr.String())
}

func TestArguments(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.csv")
	require.NoError(t, os.WriteFile(bad, []byte("arrival_s,model_id\n0,m\nsoon,m\n"), 0o600))
	for args, want := range map[string]string{
		"-servers 0":        "-servers is 0, want 1 to 1000",
		"-slots 0":          "-slots is 0, want 1 or more",
		"-rho 0":            "-rho is 0, want above 0 and at most 10",
		"-rho NaN":          "-rho is NaN, want above 0 and at most 10",
		"-load 0s":          "-load is 0s, want a time above 0",
		"-scale 0.5":        "-scale is 0.5, want 1 to 1000",
		"-passes 0":         "-passes is 0, want 1 or more",
		"-warmup -1":        "-warmup is -1, want 0 or more",
		"-seeds 0":          "-seeds is 0, want 1 or more",
		"-policies best":    `-policies: policy is "best", want one of `,
		"-fault slow:9@10%": `-fault: fault "slow:9@10%": server is "9", want 0 to 7`,
		"-trace " + bad:     bad + `:3:1: arrival_s: got "soon", want seconds`,
		"-trace /no/such":   "no such file",
		"trace.csv":         `argument is "trace.csv", want flags only`,
		"-signals gpu":      `-signals: signal is "gpu", want some of health, oip, orca, gpustats, or none alone`,
		"-load five":        `invalid value "five" for flag -load`,
		"-no-such-flag":     "flag provided but not defined",
		"-html /no/dir/r":   "no such file or directory",
	} {
		arguments := strings.Fields(args)
		var stdout bytes.Buffer
		err := run(t.Context(), arguments, &stdout, io.Discard)
		assert.ErrorContains(t, err, want, args)
		assert.Empty(t, stdout.String(), args)
	}
}

func TestHelp(t *testing.T) {
	var stderr bytes.Buffer
	assert.ErrorIs(t, run(t.Context(), []string{"-h"}, io.Discard, &stderr), flag.ErrHelp)
	assert.Contains(t, stderr.String(), "-policies")
	assert.Contains(t, stderr.String(), "drain")
}

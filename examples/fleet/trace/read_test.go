package trace

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const good = `arrival_s,model_id,user_id,input_tokens,output_tokens,duration_s
0,llama,,13,199,
0.207938,sdxl,tenant-a,,,1.5
0.207938,llama,,0,0,0
`

var goodRows = []Row{
	{Arrival: 0, Model: "llama", InputTokens: 13, OutputTokens: 199, Duration: Unknown},
	{Arrival: 0.207938, Model: "sdxl", User: "tenant-a", InputTokens: Unknown, OutputTokens: Unknown, Duration: 1.5},
	{Arrival: 0.207938, Model: "llama", InputTokens: 0, OutputTokens: 0, Duration: 0},
}

func write(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, content, 0o600))
	return path
}

func gzipped(t *testing.T, content string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write([]byte(content))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

func TestRead(t *testing.T) {
	for name, content := range map[string][]byte{
		"plain.csv":    []byte(good),
		"windows.csv":  []byte("\ufeff" + strings.ReplaceAll(good, "\n", "\r\n")),
		"zipped.gz":    gzipped(t, good),
		"unnamed-gzip": gzipped(t, good),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Read(write(t, name, content))
			require.NoError(t, err)
			assert.Equal(t, name, got.Name)
			assert.Equal(t, goodRows, got.Rows)
			assert.InDelta(t, 0.207938, got.Span(), 1e-12)
			assert.Equal(t, map[string]int{"llama": 2, "sdxl": 1}, got.Models())
		})
	}
}

func TestReadColumnsInAnyOrder(t *testing.T) {
	rows, err := Parse(strings.NewReader("region,model_id,arrival_s\neu,llama,3\n"), "t.csv")
	require.NoError(t, err)
	assert.Equal(t, []Row{{Arrival: 3, Model: "llama", InputTokens: Unknown, OutputTokens: Unknown, Duration: Unknown}}, rows)
}

func TestParseErrors(t *testing.T) {
	const header = "arrival_s,model_id,user_id,input_tokens,output_tokens,duration_s\n"
	const seconds = "seconds as a decimal number from 0, such as 0.207938"
	const tokens = "a whole number of tokens from 0, or nothing if it is unknown"
	const wantHeader = "a header line such as arrival_s,model_id,user_id,input_tokens,output_tokens,duration_s"
	for name, c := range map[string]struct{ in, want string }{
		"empty file":       {"", `t.csv:1:1: got an empty file, want ` + wantHeader},
		"no header":        {"0,llama,,1,2,\n", `t.csv:1:1: arrival_s: got columns "0,llama,,1,2,", want ` + wantHeader},
		"column missing":   {"arrival_s,user_id\n0,a\n", `t.csv:1:1: model_id: got columns "arrival_s,user_id", want ` + wantHeader},
		"column twice":     {"arrival_s,model_id,arrival_s\n", `t.csv:1:20: arrival_s: got the same column again, want each column once`},
		"no rows":          {header, `t.csv:2:1: got the end of the file, want at least one row`},
		"arrival text":     {header + "0,a,,,,\nsoon,a,,,,\n", `t.csv:3:1: arrival_s: got "soon", want ` + seconds},
		"arrival empty":    {header + ",a,,,,\n", `t.csv:2:1: arrival_s: got nothing, want ` + seconds},
		"arrival negative": {header + "-1,a,,,,\n", `t.csv:2:1: arrival_s: got "-1", want ` + seconds},
		"arrival NaN":      {header + "NaN,a,,,,\n", `t.csv:2:1: arrival_s: got "NaN", want ` + seconds},
		"arrival infinite": {header + "Inf,a,,,,\n", `t.csv:2:1: arrival_s: got "Inf", want ` + seconds},
		"unsorted":         {header + "2,a,,,,\n\n1.5,a,,,,\n", `t.csv:4:1: arrival_s: got "1.5", want at least 2, the arrival before it`},
		"no model":         {header + "0,,,,,\n", `t.csv:2:3: model_id: got nothing, want the name of a model`},
		"tokens fraction":  {header + "0,a,,1.5,,\n", `t.csv:2:6: input_tokens: got "1.5", want ` + tokens},
		"tokens negative":  {header + "0,a,,,-7,\n", `t.csv:2:7: output_tokens: got "-7", want ` + tokens},
		"tokens too many":  {header + "0,a,,99999999999999999999,,\n", `t.csv:2:6: input_tokens: got "99999999999999999999", want ` + tokens},
		"duration":         {header + "0,llama,u,1,2,fast\n", `t.csv:2:15: duration_s: got "fast", want ` + seconds + `, or nothing if it is unknown`},
		"too few fields":   {header + "0,a,,\n", `t.csv:2:1: got 4 fields, want 6 as in the header`},
		"too many fields":  {header + "0,a,,,,,\n", `t.csv:2:1: got 7 fields, want 6 as in the header`},
		"quote":            {header + "0,a\"b,,,,\n", `t.csv:2:4: got bare " in non-quoted-field, want comma-separated values`},
	} {
		t.Run(name, func(t *testing.T) {
			rows, err := Parse(strings.NewReader(c.in), "t.csv")
			assert.Nil(t, rows)
			var bad *Error
			require.ErrorAs(t, err, &bad)
			assert.Equal(t, c.want, err.Error())
		})
	}
}

func TestReadBrokenFiles(t *testing.T) {
	_, err := Read(filepath.Join(t.TempDir(), "absent.csv"))
	assert.ErrorIs(t, err, os.ErrNotExist)

	long := gzipped(t, good+strings.Repeat("1,a,,,,\n", 1000))
	path := write(t, "cut.csv.gz", long[:len(long)-20])
	_, err = Read(path)
	require.Error(t, err)
	assert.Contains(t, err.Error(), path)
	assert.Contains(t, err.Error(), "unexpected EOF")
}

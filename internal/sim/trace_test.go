package sim

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReadTrace(t *testing.T) {
	t.Parallel()
	tr, err := ReadTrace(strings.NewReader("model_id,x,arrival_s\nb,,0\na,,1\na,,1.5\n"), "f.csv")
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "b"}, tr.Models)
	assert.Equal(t, []int32{1, 0, 0}, []int32{tr.Rows[0].Model, tr.Rows[1].Model, tr.Rows[2].Model})
	assert.InDelta(t, 1/2.25, tr.Rows[1].At, 1e-9)
	assert.InDeltaSlice(t, []float64{2. / 3, 1. / 3}, tr.shares(), 1e-9)
}

func TestReadTraceSaysWhatIsWrongWhere(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"empty":       {"", "f.csv:1: header is []"},
		"columns":     {"a,b\n1,2\n", "want the columns arrival_s and model_id"},
		"time":        {"arrival_s,model_id\nx,m\n", `f.csv:2: arrival_s is "x"`},
		"negative":    {"arrival_s,model_id\n-1,m\n", `f.csv:2: arrival_s is "-1"`},
		"order":       {"arrival_s,model_id\n1,m\n0,m\n", `f.csv:3: arrival_s is "0"`},
		"nameless":    {"arrival_s,model_id\n1,\n", "f.csv:2: model_id is empty"},
		"width":       {"arrival_s,model_id\n1,m,2\n", "wrong number of fields"},
		"short":       {"arrival_s,model_id\n1,m\n", "less than two rows"},
		"at one time": {"arrival_s,model_id\n1,m\n1,m\n", "less than two rows"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := ReadTrace(strings.NewReader(c.text), "f.csv")
			assert.ErrorContains(t, err, c.want)
		})
	}
}

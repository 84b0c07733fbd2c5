package strictjson

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type inner struct {
	N     int               `json:"n"`
	F     float64           `json:"f"`
	B     bool              `json:"b"`
	List  []string          `json:"list"`
	Map   map[string]string `json:"map"`
	At    time.Time         `json:"at"`
	Skip  string            `json:"-"`
	Plain string
}

type outer struct {
	In  inner  `json:"in"`
	Ptr *inner `json:"ptr"`
	S   string `json:"s"`
}

func TestDecodeFillsFieldsAndKeepsDefaults(t *testing.T) {
	v := outer{S: "kept", In: inner{N: 7, F: 1.5}}
	unknown, err := Decode([]byte(`{"in":{"n":3,"b":true,"list":["a"],"map":{"k":"v"},"f":null},"ptr":{"n":1}}`), "", &v)
	require.NoError(t, err)
	require.Empty(t, unknown)
	require.Equal(t, outer{S: "kept", In: inner{N: 3, F: 1.5, B: true, List: []string{"a"}, Map: map[string]string{"k": "v"}}, Ptr: &inner{N: 1}}, v)
}

func TestDecodeReportsUnknownKeysByPath(t *testing.T) {
	var v outer
	unknown, err := Decode([]byte(`{"S":"x","in":{"N":1,"-":1,"Skip":2,"Plain":3},"a.b":1}`), "top", &v)
	require.NoError(t, err)
	require.Equal(t, []string{"top.S", "top.in.N", "top.in.-", "top.in.Skip", "top.in.Plain", `top["a.b"]`}, unknown)
	require.Equal(t, outer{}, v)
}

func TestDecodeNamesWhatIsWrong(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{`[]`, `the document is [], want an object`},
		{``, `the document is empty, want an object`},
		{`{"s":1}`, `s is 1, want a string`},
		{`{"in":{"n":1.5}}`, `in.n is 1.5, want an integer`},
		{`{"in":{"n":"1"}}`, `in.n is "1", want an integer`},
		{`{"in":{"f":"NaN"}}`, `in.f is "NaN", want a number`},
		{`{"in":{"f":1e999}}`, `in.f is 1e999, want a number`},
		{`{"in":{"b":0}}`, `in.b is 0, want true or false`},
		{`{"in":{"list":"a"}}`, `in.list is "a", want a list`},
		{`{"in":{"list":["a",2]}}`, `in.list[1] is 2, want a string`},
		{`{"in":{"map":{"k":2}}}`, `in.map.k is 2, want a string`},
		{`{"in":7}`, `in is 7, want an object`},
		{`{"in":{"at":"yesterday"}}`, `in.at is "yesterday", want a Time`},
		{`{"s":"a","s":"b"}`, `s is given twice, want one value`},
		{`{"in":{"n":1,"n":1}}`, `in.n is given twice, want one value`},
		{`{"s":"a"} {}`, `the document is followed by more text, want one value`},
		{`{"s":`, `s is malformed (EOF), want valid JSON`},
	} {
		t.Run(tc.in, func(t *testing.T) {
			var v outer
			_, err := Decode([]byte(tc.in), "", &v)
			require.EqualError(t, err, tc.want)
		})
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{`{}`, `{"in":{"n":1}}`, `{"ptr":{"map":{"":""}}}`, `{"s":"\ud800"}`, `{`, `null`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var v outer
		_, _ = Decode(data, "", &v) // must not panic
	})
}

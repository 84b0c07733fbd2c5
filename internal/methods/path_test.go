package methods

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParsePath(t *testing.T) {
	for s, want := range map[string]Path{
		"1": {1}, "1.13": {1, 13}, "1.1.13": {1, 1, 13}, "536870911": {536870911}, "18999.20000": {18999, 20000},
		strings.TrimSuffix(strings.Repeat("7.", 16), "."): {7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7},
	} {
		p, err := ParsePath(s)
		require.NoError(t, err, s)
		assert.Equal(t, want, p)
		assert.Equal(t, s, p.String(), "parses back")
	}
}

func TestParsePathRejects(t *testing.T) {
	for s, want := range map[string]string{
		"":                       `field path "": element 1 is ""`,
		"0":                      `element 1 is "0"`,
		"01":                     `element 1 is "01"`,
		"-1":                     `element 1 is "-1"`,
		"+1":                     `element 1 is "+1"`,
		"1.":                     `element 2 is ""`,
		".1":                     `element 1 is ""`,
		"1..2":                   `element 2 is ""`,
		"1.x":                    `field path "1.x": element 2 is "x", want a field number (1 to 536870911, except 19000 to 19999) as in "1.13"`,
		"1, 2":                   `element 1 is "1, 2"`,
		"536870912":              `element 1 is "536870912"`,
		"99999999999":            `element 1 is "99999999999"`,
		"19000":                  `element 1 is "19000"`,
		"1.19999":                `element 2 is "19999"`,
		strings.Repeat("7.", 17): `field path has 18 numbers, want at most 16`,
	} {
		p, err := ParsePath(s)
		assert.ErrorContains(t, err, want, s)
		assert.Nil(t, p, s)
	}
}

func TestParsePathErrorIsShort(t *testing.T) {
	_, err := ParsePath(strings.Repeat("x", 1<<20))
	require.Error(t, err)
	assert.Less(t, len(err.Error()), 300)
}

func TestEmptyPathString(t *testing.T) { assert.Equal(t, "", Path(nil).String()) }

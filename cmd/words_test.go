package cmd

import (
	"slices"
	"strings"
	"testing"
)

func TestSplitWords(t *testing.T) {
	for _, c := range []struct {
		in   string
		want []string
		fail string
	}{
		{in: "backup.sh", want: []string{"backup.sh"}},
		{in: "  a \t b\nc ", want: []string{"a", "b", "c"}},
		{in: `a '' ""`, want: []string{"a", "", ""}},
		{in: `'a b'"c d"e`, want: []string{"a bc de"}},
		{in: `a\ b`, want: []string{"a b"}},
		{in: `grep "a\|b"`, want: []string{"grep", `a\|b`}},
		{in: `printf "a\n\"\\\$"`, want: []string{"printf", `a\n"\$`}},
		{in: "a \\\nb", want: []string{"a", "b"}},
		{in: "'$HOME `x` *'", want: []string{"$HOME `x` *"}},
		{in: "a#b c~d x=1", want: []string{"a#b", "c~d", "x=1"}},
		{in: "-v --version", want: []string{"-v", "--version"}},
		{in: "a | b", fail: "'|'"},
		{in: "a;b", fail: "';'"},
		{in: "a > f", fail: "'>'"},
		{in: "echo $HOME", fail: "'$'"},
		{in: `echo "$HOME"`, fail: "'$'"},
		{in: "echo `x`", fail: "'`'"},
		{in: "ls *.go", fail: "'*'"},
		{in: "ls ~/x", fail: "'~'"},
		{in: "a # b", fail: "'#'"},
		{in: "'a", fail: "no end"},
		{in: `"a`, fail: "no end"},
		{in: `a\`, fail: "backslash"},
		{in: " ", fail: "empty"},
	} {
		got, err := splitWords(c.in)
		switch {
		case c.fail != "":
			if err == nil || !strings.Contains(err.Error(), c.fail) {
				t.Errorf("%q: error %v, want one with %s", c.in, err, c.fail)
			}
		case err != nil:
			t.Errorf("%q: %v", c.in, err)
		case !slices.Equal(got, c.want):
			t.Errorf("%q: %q, want %q", c.in, got, c.want)
		}
	}
}

package cmd

import (
	"encoding/json"
	"testing"
)

func TestEscape(t *testing.T) {
	for in, want := range map[string]string{
		"backup.sh äöü 東京": "backup.sh äöü 東京",
		"a\x1b[2Jb":        `a\x1b[2Jb`,
		"a\r\nb\tc":        `a\x0d\x0ab\x09c`,
		"\u009b31m":        `\u009b31m`,
		"\x9b31m":          `\x9b31m`,
		"a\u202eb\u2066":   `a\u202eb\u2066`,
		"\u2028":           `\u2028`,
		"\U000e0001":       `\U000e0001`,
		"\x7f\x00":         `\x7f\x00`,
		"\ufffd":           "\ufffd",
	} {
		if got := escape(in); got != want {
			t.Errorf("escape(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestEscapeJSON(t *testing.T) {
	in := "x\x1b\u009b\u202e\x7f\U000e0001ö\u2028\n"
	raw, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	safe := escapeJSON(raw)
	for _, r := range string(safe) {
		if r < ' ' || r >= 0x7f && r != 'ö' {
			t.Errorf("%q contains %q", safe, r)
		}
	}
	var back string
	if err := json.Unmarshal(safe, &back); err != nil || back != in {
		t.Errorf("%q reads as %q (%v), want %q", safe, back, err, in)
	}
}

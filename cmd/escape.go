package cmd

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// escape makes text from elsewhere harmless on a terminal: what is not printable
// (control characters, among them those of the C1 range, line ends, characters
// that turn the direction of writing, broken UTF-8) is shown as \x1b or \u202e.
func escape(s string) string {
	if utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1, r < utf8.RuneSelf && !strconv.IsPrint(r):
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case strconv.IsPrint(r):
			b.WriteString(s[:n])
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
		s = s[n:]
	}
	return b.String()
}

// escapeJSON does the same to finished JSON, without changing what it says:
// programs read the same string, a terminal obeys nothing.
func escapeJSON(line []byte) []byte {
	out := make([]byte, 0, len(line))
	for len(line) > 0 {
		r, n := utf8.DecodeRune(line)
		switch {
		case r < 0x7f, strconv.IsPrint(r):
			out = append(out, line[:n]...)
		case r < 0x10000:
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			r -= 0x10000
			out = fmt.Appendf(out, `\u%04x\u%04x`, 0xd800+(r>>10), 0xdc00+(r&0x3ff))
		}
		line = line[n:]
	}
	return out
}

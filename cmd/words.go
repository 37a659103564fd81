package cmd

import (
	"errors"
	"fmt"
	"strings"
)

// splitWords splits s into words by the quoting rules of a POSIX shell, and
// expands nothing. What would need a shell (operators, substitutions,
// variables, patterns) is an error unless it is quoted: passed on silently it
// would do something else than it seems to.
func splitWords(s string) ([]string, error) {
	var words []string
	var word strings.Builder
	in := false // in a word, which may be empty: ''
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case strings.IndexByte(" \t\n", c) >= 0:
			if in {
				words = append(words, word.String())
				word.Reset()
				in = false
			}
			continue
		case c == '\\':
			i++
			if i == len(s) {
				return nil, errors.New("it ends in a backslash")
			}
			if s[i] == '\n' { // a line that goes on
				continue
			}
			word.WriteByte(s[i])
		case c == '\'':
			end := strings.IndexByte(s[i+1:], '\'')
			if end < 0 {
				return nil, errors.New("a ' has no end")
			}
			word.WriteString(s[i+1 : i+1+end])
			i += end + 1
		case c == '"':
			n, err := doubleQuoted(&word, s[i+1:])
			if err != nil {
				return nil, err
			}
			i += n
		case needsShell(c), c == '#' && !in, c == '~' && !in:
			return nil, fmt.Errorf("%q means something to a shell, and none is run: quote it, or use -- sh -c '…'", c)
		default:
			word.WriteByte(c)
		}
		in = true
	}
	if in {
		words = append(words, word.String())
	}
	if len(words) == 0 {
		return nil, errors.New("it is empty")
	}
	return words, nil
}

func needsShell(c byte) bool { return strings.IndexByte("|&;<>()$`*?", c) >= 0 }

// doubleQuoted reads up to the closing quote and returns how many bytes that
// took. A backslash quotes only $ ` " \ there.
func doubleQuoted(word *strings.Builder, s string) (int, error) {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '"':
			return i + 1, nil
		case '$', '`':
			return 0, fmt.Errorf("%q means something to a shell, and none is run: quote it, or use -- sh -c '…'", c)
		case '\\':
			if i+1 < len(s) && strings.IndexByte("$`\"\\\n", s[i+1]) >= 0 {
				i++
				if s[i] != '\n' {
					word.WriteByte(s[i])
				}
				continue
			}
			word.WriteByte(c)
		default:
			word.WriteByte(c)
		}
	}
	return 0, errors.New(`a " has no end`)
}

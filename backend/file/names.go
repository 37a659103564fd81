package file

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"path/filepath"
	"strings"
)

const (
	// A file name may have 255 bytes; what is longer is cut and hashed.
	maxEscaped = 200
	keptPrefix = 120
	// hashMark never stands in a name that is merely escaped.
	hashMark = "%%"
)

// escape makes the file name of a mutex. Names that differ in one byte differ,
// also on a file system that does not tell case: capitals become %xx. It never
// begins with a dot.
func escape(mutex string) string {
	const digits = "0123456789abcdef"
	var b strings.Builder
	for i := range len(mutex) {
		c := mutex[i]
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9',
			c == '-', c == '_', c == '=', c == '@', c == '+', c == '.' && i > 0:
			b.WriteByte(c)
		default:
			b.WriteByte('%')
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
		}
	}
	s := b.String()
	if s != "" && len(s) <= maxEscaped {
		return s
	}
	sum := sha256.Sum256([]byte(mutex))
	s = s[:min(len(s), keptPrefix)]
	if i := strings.LastIndexByte(s, '%'); i >= 0 && i > len(s)-3 {
		s = s[:i]
	}
	return s + hashMark + hex.EncodeToString(sum[:20])
}

// unescape is the mutex of a file name; ok is false if it is hashed or foreign.
func unescape(name string) (mutex string, ok bool) {
	var b []byte
	for i := 0; i < len(name); i++ {
		if name[i] != '%' {
			b = append(b, name[i])
			continue
		}
		if i+2 >= len(name) {
			return "", false
		}
		c, err := hex.DecodeString(name[i+1 : i+3])
		if err != nil {
			return "", false
		}
		b = append(b, c[0])
		i += 2
	}
	return string(b), len(b) > 0 && escape(string(b)) == name
}

// Tag is the word by which the guards of one mutex in one directory are found.
// Every process that can reach the directory makes the same of it, whatever
// symbolic links lie on its way.
func Tag(dir, mutex string) string {
	sum := sha256.Sum256([]byte(realPath(dir) + "\x00" + mutex))
	return hex.EncodeToString(sum[:16])
}

// claimByte is where in the directory the claim of a mutex lies: far beyond any
// real offset, and the same for two names only if their hashes collide.
func claimByte(mutex string) int64 {
	sum := sha256.Sum256([]byte(mutex))
	return int64(binary.BigEndian.Uint64(sum[:8])>>2) | 1<<61
}

// realPath resolves as much of an absolute path as exists.
func realPath(path string) string {
	path = filepath.Clean(path)
	rest := ""
	for p := path; ; p = filepath.Dir(p) {
		if found, err := filepath.EvalSymlinks(p); err == nil {
			return filepath.Join(found, rest)
		}
		if p == filepath.Dir(p) {
			return path
		}
		rest = filepath.Join(filepath.Base(p), rest)
	}
}

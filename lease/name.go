package lease

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
)

// ErrName: not the name of a mutex.
var ErrName = errors.New("not a mutex name")

const maxName = 128

// CheckName returns ErrName with the rule that s breaks. Each backend could bear
// other names; one rule for all lets a mutex move. "@@" ends the id in a
// message of the JVM library, "latch-" marks its queue nodes in ZooKeeper, and
// what follows a slash becomes a path element there.
func CheckName(s string) error {
	switch {
	case s == "":
		return fmt.Errorf("%w: it is empty", ErrName)
	case len(s) > maxName:
		return fmt.Errorf("%w: it has %d bytes, at most %d are allowed", ErrName, len(s), maxName)
	case !isLetterOrDigit(s[0]) || strings.ContainsFunc(s, notInName):
		return fmt.Errorf("%w: %q: a letter or digit, then letters, digits and . _ : / @ + = -", ErrName, s)
	case strings.Contains(s, "@@"):
		return fmt.Errorf("%w: %q contains @@", ErrName, s)
	case strings.Contains(s, "latch-"):
		return fmt.Errorf("%w: %q contains latch-", ErrName, s)
	}
	for _, part := range strings.Split(s, "/")[1:] {
		if part == "" || !isLetter(part[0]) {
			return fmt.Errorf("%w: %q: after each / there must be a letter", ErrName, s)
		}
	}
	return nil
}

func notInName(r rune) bool {
	return r >= 0x80 || !isLetterOrDigit(byte(r)) && !strings.ContainsRune("._:/@+=-", r)
}

func isLetterOrDigit(c byte) bool { return isLetter(c) || '0' <= c && c <= '9' }

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// IDForm is how a contender's id begins.
type IDForm int

const (
	// IDHost puts counter, pid and host in front for people.
	IDHost IDForm = iota
	// IDUUID is the random part only.
	IDUUID
)

// maxHost keeps an id within 128 bytes and leaves room for the numbers.
const maxHost = 64

var counter atomic.Uint64

// NewID makes the id of a contender: {counter}:{pid}@{host} for people, then a
// slash and 128 random bits in hex. It is never made twice, not by a restarted
// container with the same host name and pid either.
func NewID(form IDForm) string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	random := hex.EncodeToString(b[:])
	if form == IDUUID {
		return random
	}
	return fmt.Sprintf("%d:%d@%s/%s", counter.Add(1)-1, os.Getpid(), Host(), random)
}

// Host is the host name as it stands in ids: [A-Za-z0-9.-], 64 bytes at most.
func Host() string {
	h, err := os.Hostname()
	if err != nil {
		h = ""
	}
	h = strings.Map(func(r rune) rune {
		if r < 0x80 && (isLetterOrDigit(byte(r)) || r == '.' || r == '-') {
			return r
		}
		return -1
	}, h)
	if h == "" {
		h = "unknown"
	}
	return h[:min(len(h), maxHost)]
}

// ShortID is the part of an id that people are shown.
func ShortID(id string) string {
	if i := strings.LastIndexByte(id, '/'); i > 0 {
		return id[:i]
	}
	return id
}

package mysql

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"unicode/utf16"

	"github.com/simba-lock/simba/lease"
)

// lockName has at most 64 characters, and no letters that differ in case.
func lockName(database, mutex, id string) string {
	sum := sha256.Sum256([]byte(database + "\x00" + mutex + "\x00" + id))
	return "simba:" + hex.EncodeToString(sum[:20])
}

// maxInfo keeps a queue of hundreds within its column.
const maxInfo = 4096

// encoded is JSON in ASCII: no character set of a column or a connection
// changes it, and it has neither tabs nor line feeds.
func encoded(i lease.Info) string {
	b, err := json.Marshal(i)
	if err == nil && len(b) > maxInfo {
		i.Note, i.Program = "", ""
		b, err = json.Marshal(i)
	}
	if err != nil || len(b) > maxInfo {
		return "{}"
	}
	var out []byte
	for _, r := range string(b) {
		switch {
		case r < 0x80:
			out = append(out, byte(r))
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, hi, lo)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return string(out)
}
